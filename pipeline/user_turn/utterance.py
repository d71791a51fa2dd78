"""The state of an utterance until its transcript is known, and the choice of that transcript."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from core.errors import EarshotError, EngineError, OverloadedError
from engines.base import AsrResult
from pipeline.shared.settings import SessionSettings
from pipeline.shared.turn import Turn, TurnMark
from pipeline.transcription.no_speech import (
    NoSpeechCriterion,
    filter_no_speech,
    rejected_result,
)
from pipeline.transcription.stream import TranscriptStream
from pipeline.user_turn.continuation import Continuation, UtteranceRecord
from pipeline.user_turn.events import TurnResponder


@dataclass(frozen=True, slots=True)
class ProvisionalTranscript:
    """Words of an utterance during a pause. They hold if the pause turns out to be its end."""

    words: str
    "All words of the utterance, including those of the one it continues."
    new: str
    "Words that it adds to the utterance before it; all of them if it continues none."
    known_at: float
    "Monotonic seconds at which they were known."


@dataclass(slots=True)
class OpenUtterance:
    """The utterance that is being spoken."""

    stream: TranscriptStream
    "Transcription of the utterance."
    record: UtteranceRecord
    "The part of its state that is kept after its end."
    is_announced: bool
    "True if the client received SpeechStarted, so that it will also receive SpeechStopped."
    criterion: NoSpeechCriterion = NoSpeechCriterion.BOTH
    "Criterion for whether it was speech."
    end: int | None = None
    "Sample one past the speech, while a pause lasts."
    pause_marks: dict[TurnMark, float] = field(default_factory=dict[TurnMark, float])
    "Time marks of the pause that may be its end."
    provisional: ProvisionalTranscript | None = None
    "Transcript that holds if that pause is its end."
    speaker_task: asyncio.Task[bool] | None = None
    "Recognises its speaker; None: the server knows no voice, or the task has not begun."
    is_full: bool = False
    "True if it reached the longest length and takes no more audio."

    @property
    def settings(self) -> SessionSettings:
        """Settings that were in force when it began. They apply to all of it."""
        return self.record.settings

    @property
    def turn(self) -> Turn:
        return self.record.turn

    @property
    def continuation(self) -> Continuation | None:
        return self.record.continuation

    @property
    def start(self) -> int:
        """Sample of the session at which the decoded audio begins."""
        return self.record.start - self.record.own_start

    def filtered(self, result: AsrResult) -> AsrResult:
        """Returns the result, or an empty one for noise. `result`: a decode of its own audio
        only."""
        return filter_no_speech(result, self.record.evidence, self.criterion)

    def filter_joined(self, result: AsrResult, continuation: Continuation) -> AsrResult:
        """Returns the result of a decode of all audio, or an empty one if it adds no spoken words.
        Sets `continuation.words_added`."""
        continuation.words_added = (
            continuation.new_words(result) if continuation.is_possible else ""
        )
        if continuation.words_added and continuation.is_spoken(
            result, self.record.all_evidence, self.criterion
        ):
            return result
        # Words that the former transcript already has are not lost.
        lost = len(continuation.words_added.split())
        return replace(rejected_result(result), rejected_words=lost)

    def set_provisional(self, result: AsrResult, now: float) -> AsrResult:
        """Returns the transcript that holds if the utterance is over, and keeps it as
        `provisional`."""
        continuation = self.continuation
        filtered = (
            self.filtered(result)
            if continuation is None
            else self.filter_joined(result, continuation)
        )
        words = filtered.text
        self.provisional = ProvisionalTranscript(
            words, continuation.words_added if continuation is not None and words else words, now
        )
        return filtered

    def known_at(self, words: str, now: float) -> float:
        """Returns when its final words were known: already in the pause, if they equal the
        provisional ones."""
        provisional = self.provisional
        return (
            provisional.known_at
            if provisional is not None and words in (provisional.words, provisional.new)
            else now
        )

    def give_up(self) -> None:
        """Ends the utterance without a transcript: tasks that wait for its words get an empty
        text."""
        self.stream.discard()
        self.record.settle_continuation()
        self.record.set_text("")


# Final transcript of an utterance that may continue a former one: of both together, or of the new
# audio alone. Decoding both together is usually more accurate, but not when they are two separate
# commands. So a result that is a complete command wins over one that only agrees with the former
# transcript.

NewAudioDecode = Callable[[], Awaitable[AsrResult]]
"Decodes only the new audio. Raises EngineError, OverloadedError."


async def final_result(
    utterance: OpenUtterance, responder: TurnResponder, decode_new_audio: NewAudioDecode
) -> AsrResult:
    """Returns the final transcript. Afterwards `utterance.continuation` says whether the utterance
    replaces the former one; if so, this must be reported at once. Raises EngineError,
    OverloadedError."""
    continuation = utterance.continuation
    if continuation is None:
        result = utterance.filtered(await utterance.stream.finish())
        await responder.check_interruption(utterance.turn, result.text)
        return result
    result = await _joined_result(utterance, continuation, responder, decode_new_audio)
    utterance.record.settle_continuation()
    return result


async def _joined_result(
    utterance: OpenUtterance,
    continuation: Continuation,
    responder: TurnResponder,
    decode_new_audio: NewAudioDecode,
) -> AsrResult:
    """Returns the final transcript of an utterance that may continue another. Sets
    `continuation.is_taken`."""
    joined = await utterance.stream.finish()
    await continuation.former.known.wait()
    if not continuation.is_possible:
        return utterance.filtered(await decode_new_audio())
    joined = utterance.filter_joined(joined, continuation)
    if not joined.text:
        return joined  # the decode of all audio adds no words to the former ones
    if utterance.criterion is NoSpeechCriterion.RECOGNISER and continuation.evidence.is_silence:
        # The former words make the decode of all audio sure, even if words were made up after them.
        # So the new audio is judged alone.
        own = utterance.filtered(await decode_new_audio())
        if not own.text:
            return own
    replaces = responder.replaces_former(utterance.turn, continuation.words_added)
    words = joined.text if replaces else continuation.words_added
    other = await _more_credible(words, joined, continuation, responder, decode_new_audio)
    if other is not None:
        return utterance.filtered(other)
    # again: a tool may have run meanwhile, and then nothing is replaced
    if responder.replaces_former(utterance.turn, continuation.words_added):
        continuation.is_taken = True
        return joined
    return replace(
        joined,
        text=continuation.words_added,
        words=continuation.words_in_new_audio(joined),
        segments=(),
        tokens=(),
    )


async def _more_credible(
    words: str,
    joined: AsrResult,
    continuation: Continuation,
    responder: TurnResponder,
    decode_new_audio: NewAudioDecode,
) -> AsrResult | None:
    """Returns the decode of only the new audio where it is more credible than `words`, taken from
    the decode of all audio. Returns None to keep `words`, also when that decode fails."""
    is_command = await _is_command(words, joined.language, responder)
    if is_command or (is_command is None and continuation.agrees(joined)):
        return None
    try:
        other = await decode_new_audio()
    except (EngineError, OverloadedError):
        return None
    is_other = await _is_command(other.text, other.language, responder) if other.text else False
    if is_other is not None and is_other != bool(is_command):
        return other if is_other else None
    is_surer = other.confidence > joined.confidence
    return other if other.text and is_surer and not continuation.agrees(joined) else None


async def _is_command(words: str, language: str, responder: TurnResponder) -> bool | None:
    try:
        return await responder.is_command(words, language)
    except EarshotError:
        return None  # the answer meets the same error and reports it
