"""State of an utterance from its start until its transcript is known."""

from dataclasses import dataclass, field

from core.audio import Pcm
from engines.base import AsrResult
from pipeline.shared.settings import SessionSettings
from pipeline.shared.turn import Turn, TurnMark
from pipeline.transcription.no_speech import (
    NoSpeechCriterion,
    NoSpeechFilter,
    filter_no_speech,
    rejected_result,
)
from pipeline.transcription.stream import TranscriptStream
from pipeline.user_turn.continuation import Continuation, EndedUtterance


@dataclass(frozen=True, slots=True)
class ProvisionalTranscript:
    """Words of an utterance as they would be if it is over."""

    words: str
    "All words of the utterance, including those of the one it continues."
    new: str
    "Words that remain if it stands alone."
    known_at: float
    "Monotonic seconds at which they were known."


@dataclass(slots=True)
class OpenUtterance:
    """The utterance that is being spoken."""

    stream: TranscriptStream
    "Transcription of the utterance."
    record: EndedUtterance
    "Record of it that remains after its end; also holds its own audio."
    is_announced: bool
    "True if the client received SpeechStarted, so that it will also receive SpeechStopped."
    evidence: NoSpeechFilter
    "VAD evidence of speech in its own audio."
    criterion: NoSpeechCriterion = NoSpeechCriterion.BOTH
    "Criterion for whether it was speech."
    end: int | None = None
    "Sample one past the speech, while a pause lasts."
    pause_marks: dict[TurnMark, float] = field(default_factory=dict[TurnMark, float])
    "Time marks of the pause that may be its end."
    provisional: ProvisionalTranscript | None = None
    "Transcript that holds if that pause is its end."
    is_full: bool = False
    "True if it reached the longest length and takes no more audio."

    @property
    def settings(self) -> SessionSettings:
        """Settings from when it began; it is decoded by them."""
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
        return self.record.start - (0 if self.continuation is None else len(self.continuation.pcm))

    def push(self, pcm: Pcm) -> None:
        """Adds the next samples of its own audio."""
        self.stream.push(pcm)
        self.record.audio.push(pcm)

    def add_evidence(self, probability: float, samples: int) -> None:
        """Adds the VAD probability (0 to 1) of its newest `samples`."""
        self.evidence.push(probability, samples)
        self.record.evidence.push(probability, samples)

    def filtered(self, result: AsrResult) -> AsrResult:
        """Returns the result, or an empty one for noise. `result`: a decode of its own audio
        only."""
        return filter_no_speech(result, self.evidence, self.criterion)

    def filter_joined(self, result: AsrResult, continuation: Continuation) -> AsrResult:
        """Returns the result of a decode of all audio, or an empty one if it adds no spoken words.
        Sets `continuation.words_added`."""
        continuation.words_added = (
            continuation.new_words(result) if continuation.is_possible else ""
        )
        if continuation.words_added and continuation.is_spoken(
            result, self.record.evidence, self.criterion
        ):
            return result
        return rejected_result(result)

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
        """Gives up: its words will never be known."""
        self.stream.discard()
        self.record.settle_continuation()
        self.record.set_text("")
