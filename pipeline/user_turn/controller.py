"""Turns microphone frames into committed utterances with their transcripts."""

import asyncio
import logging
from collections.abc import Callable
from copy import copy

from core.audio import ASR_RATE_HZ, AudioFrame, samples_to_ms
from core.errors import EngineError, OverloadedError, RequestError
from core.events import (
    ErrorEvent,
    InputCleared,
    InputCommitted,
    ItemAdded,
    ItemDone,
    SessionEvent,
    SpeechDiscarded,
    SpeechStarted,
    SpeechStopped,
    TranscriptionCompleted,
    TranscriptionFailed,
)
from core.ids import new_id
from core.items import AudioPart, MessageItem
from core.ports import Clock
from engines.base import AsrResult
from pipeline.conversation.history import History
from pipeline.services import EngineSet
from pipeline.shared.settings import SessionSettings
from pipeline.shared.turn import Turn, TurnMark
from pipeline.transcription.audio_buffer import AudioBuffer
from pipeline.transcription.no_speech import NoSpeechCriterion, NoSpeechFilter
from pipeline.transcription.stream import TranscriptStream
from pipeline.user_turn.continuation import Continuation, ContinuationWindow, EndedUtterance
from pipeline.user_turn.endpoint_timer import EndpointTimer
from pipeline.user_turn.endpointing import EdgeKind, SpeechEdge
from pipeline.user_turn.events import PartialTranscripts, UserTurnHandler
from pipeline.user_turn.final_result import final_result
from pipeline.user_turn.speech_detector import DetectedFrame, SpeechDetector
from pipeline.user_turn.turn_detection import TurnDetector
from pipeline.user_turn.utterance import OpenUtterance

logger = logging.getLogger(__name__)

MIN_COMMIT_MS = 100
"Shortest audio that a client may commit. The hosted service has the same limit."

MAX_HELD_MS = 328_000
"""Longest audio in push-to-talk that is kept without a commit or a clear; more was not meant for
us. The longest audio of one event, 15 MiB at 24 kHz, fits in."""


class UserTurnController:
    """Detects, commits and transcribes the user's utterances of one session.

    With `turn_detection` in the settings, a pause commits an utterance. Without it (push to talk),
    `commit` does. Reports to a `UserTurnHandler`, emits events for the client, and adds a message
    item to the history:

        controller.listen(frame, tasks)  # each microphone frame of 16 kHz
        controller.commit(tasks)  # push to talk: the utterance is over
    """

    def __init__(
        self,
        hearing: SpeechDetector,
        engines: EngineSet,
        history: History,
        settings: Callable[[], SessionSettings],
        reactions: UserTurnHandler,
        clock: Clock,
        emit: Callable[[SessionEvent], None],
    ) -> None:
        self._hearing, self._engines, self._history = hearing, engines, history
        self._settings, self._reactions = settings, reactions
        self._clock, self._emit = clock, emit
        self._evidence = TurnDetector(engines.endpoint, reactions.is_whole, self._expect)
        self._ending = EndpointTimer(hearing, clock)
        self._joining = ContinuationWindow()
        self._open: OpenUtterance | None = None
        self._uncommitted = 0
        "Samples since the last commit or clear (push-to-talk)."
        self._transcribing = 0

    @property
    def is_transcribing(self) -> bool:
        """True if committed audio waits for its transcript."""
        return self._transcribing > 0

    @property
    def is_speaking(self) -> bool:
        """True if an utterance has begun and is not over."""
        return self._open is not None

    @property
    def is_active(self) -> bool:
        """True if an utterance is being spoken or waits for its transcript."""
        return self.is_speaking or self.is_transcribing

    def is_ending_within(self, seconds: float) -> bool:
        """Returns whether the utterance ends within `seconds` if the user stays silent."""
        return self._ending.is_due_within(seconds)

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Ends utterances whose silence is over between two frames. Runs until it is cancelled."""
        await self._ending.run(lambda: self._suppose(tasks))

    def listen(self, frame: AudioFrame, tasks: asyncio.TaskGroup) -> None:
        """Takes the next microphone frame. Raises RequestError when it is not 16 kHz."""
        self._ending.came(len(frame.pcm))
        for heard in self._hearing.push(frame):
            self._hear(heard, tasks)
        self._ending.settle()

    def commit(self, tasks: asyncio.TaskGroup) -> None:
        """Commits the utterance at the client's request. Raises RequestError
        input_audio_buffer_commit_empty when there is less than `MIN_COMMIT_MS` of audio."""
        open_ = self._open
        if open_ is None:
            if samples_to_ms(self._uncommitted, ASR_RATE_HZ) < MIN_COMMIT_MS:
                raise RequestError(
                    f"the input audio buffer holds less than {MIN_COMMIT_MS} ms of audio",
                    code="input_audio_buffer_commit_empty",
                )
            # None of the audio was speech: commit what the detector still keeps.
            recent = self._hearing.recent()
            start = self._hearing.samples - len(recent)
            open_ = self._begin(start, tasks, is_announced=False)
            open_.push(recent)
        self._hearing.reset()
        self._finish(open_, tasks)
        self._joining.forget()  # the client has said that it is over, so nothing may continue it

    def clear(self) -> None:
        """Drops audio that is not committed."""
        self._hearing.reset()
        self._joining.forget()
        self._uncommitted = 0
        if self._open is not None:
            self._open.give_up()
            if self._open.is_announced:
                self._emit(SpeechDiscarded(self._open.utterance.id))
            self._reactions.speech_dropped(self._open.turn)
            self._open = None
        self._emit(InputCleared())

    def close(self) -> None:
        """Frees what a recogniser keeps for the utterance that the end of the session cuts off."""
        if self._open is not None:
            self._open.utterance.discard()
            self._open = None

    def _hear(self, heard: DetectedFrame, tasks: asyncio.TaskGroup) -> None:
        # Without an open utterance, a push-to-talk client may still commit this audio.
        """Takes one VAD frame: feeds the open utterance, and handles an edge of speech."""
        self._uncommitted += len(heard.pcm) if self._open is None else 0
        edge = heard.edge.edge if heard.edge else None
        if edge is EdgeKind.STARTED and self._open is None:
            self._start(heard, tasks)
            return
        open_ = self._open
        if open_ is None:
            self._joining.heard(heard.pcm)
            return
        if open_.utterance.audio_ms >= MAX_HELD_MS:
            self._refuse_more(open_)
        else:
            open_.push(heard.pcm)
        open_.heard(heard.probability, len(heard.pcm))
        if heard.edge is None:
            return
        # in push to talk too: the settings may have changed during the pause
        if edge is EdgeKind.RESUMED:
            open_.end = None
            open_.guessed.clear()
            open_.guess = None
            self._evidence.end()
            open_.utterance.resume()
            self._reactions.speech_resumed(open_.turn)
        elif edge is EdgeKind.CANDIDATE:
            self._pause(open_, heard.edge, tasks)
        elif edge is EdgeKind.ENDED:
            open_.end = heard.edge.at
            self._finish(open_, tasks)
            self._joining.ended(open_.said)

    def _suppose(self, tasks: asyncio.TaskGroup) -> None:
        """Ends the utterance by the timer, when the rest of its silence has passed without a
        frame."""
        missing, open_ = self._hearing.missing, self._open
        ended = self._hearing.suppose()
        if missing is not None and ended is not None and open_ is not None:
            open_.end = ended.at
            self._finish(open_, tasks, supposed=missing)
            self._joining.ended(open_.said)

    def _expect(self, probability: float | None, pause: int) -> None:
        self._hearing.expect(probability, pause)
        self._ending.settle()

    def _pause(self, open_: OpenUtterance, pause: SpeechEdge, tasks: asyncio.TaskGroup) -> None:
        """Begins what can be done during the pause: a decode of all speech so far, turn
        detection."""
        detection, heard_until = self._settings().turn_detection, pause.until - open_.start
        if detection is None:
            open_.utterance.prepare(heard_until)
            return
        if detection.kind == "semantic_vad":
            self._evidence.begin(pause.at, open_.utterance.open_pcm(), tasks)
        open_.end = pause.at
        open_.guessed[TurnMark.CANDIDATE] = self._clock.now()
        self._reactions.speech_paused(open_.turn)
        open_.utterance.prepare(heard_until, self._guess(open_, tasks))

    def _guess(self, open_: OpenUtterance, tasks: asyncio.TaskGroup) -> Callable[[AsrResult], None]:
        def report(result: AsrResult) -> None:
            supposed = open_.suppose(result, self._clock.now())
            self._evidence.heard(result.text, result.language, tasks)
            self._reactions.supposed(open_.turn, supposed)

        return report

    def _refuse_more(self, open_: OpenUtterance) -> None:
        if not open_.is_full:
            open_.is_full = True
            limit_s = MAX_HELD_MS // 1000
            message = f"the input audio buffer is full ({limit_s} s): commit or clear it"
            self._emit(ErrorEvent("input_audio_buffer_full", message, is_clients=True))

    def _start(self, heard: DetectedFrame, tasks: asyncio.TaskGroup) -> None:
        """Opens an utterance at the start of speech."""
        assert heard.edge is not None
        is_announced = self._settings().turn_detection is not None
        start = self._hearing.samples - len(heard.pcm)
        join = self._join(heard.edge.at, start)
        open_ = self._begin(start, tasks, is_announced=is_announced, join=join)
        open_.push(heard.pcm)
        spoken = self._hearing.samples - heard.edge.at
        # The frames before this one had as high a probability: together they made the start.
        open_.heard(heard.probability, spoken)
        open_.turn.mark(TurnMark.SPEECH_START, self._clock.now() - spoken / ASR_RATE_HZ)
        if is_announced:
            self._emit(SpeechStarted(open_.utterance.id, _ms(start)))
        self._reactions.speech_started(open_.turn, join)

    def _join(self, speech: int, start: int) -> Continuation | None:
        """Links the utterance to the one before it, if no answer to that is well under way."""
        last = self._joining.last(speech, self._settings())
        if last is None or not self._reactions.is_open(last.turn):
            return None
        return self._joining.join(last, start)

    def _begin(
        self,
        start: int,
        tasks: asyncio.TaskGroup,
        *,
        is_announced: bool,
        join: Continuation | None = None,
    ) -> OpenUtterance:
        """Opens an utterance, beginning with the audio of the one that it continues, if any."""
        self._joining.forget()
        settings = self._settings()
        item_id = new_id("item")
        utterance = self._utterance(item_id, settings, tasks)
        turn = Turn(new_id("turn"), item_id)
        live = PartialTranscripts(turn, self._reactions, self._emit)
        utterance.follow(live.hypothesis, live.failed, live.nothing_heard)
        if join is not None:
            utterance.push(join.pcm)
        own = NoSpeechFilter() if join is None else join.evidence
        both = NoSpeechFilter() if join is None else copy(join.former.evidence)
        said = EndedUtterance(turn, settings, start, AudioBuffer(), both, join)
        self._open = OpenUtterance(utterance, said, is_announced, own, self._judge(settings))
        return self._open

    def _judge(self, settings: SessionSettings) -> NoSpeechCriterion:
        """Returns the criterion for speech. In push to talk the client says when the user speaks,
        so nothing is filtered, unless the configuration is strict."""
        if settings.turn_detection is None and self._engines.no_speech != "strict":
            return NoSpeechCriterion.NOBODY
        return self._engines.judge(settings.asr, settings.no_speech_threshold)

    def _utterance(
        self, utterance_id: str, settings: SessionSettings, tasks: asyncio.TaskGroup
    ) -> TranscriptStream:
        recogniser = self._engines.recogniser(settings.asr)
        wished = settings.recognition(recogniser.info, self._engines.expected())
        options = self._engines.recognition(wished)
        wasted = self._engines.wasted
        return TranscriptStream(recogniser, utterance_id, options, self._clock, tasks, wasted)

    def _finish(self, open_: OpenUtterance, tasks: asyncio.TaskGroup, *, supposed: int = 0) -> None:
        """Commits the utterance: the client learns of the item, and its transcription begins.
        `supposed`: samples of silence that are assumed but have not arrived."""
        self._open = None
        self._uncommitted = 0
        self._evidence.end()
        open_.utterance.end()
        now = self._clock.now()
        end = self._hearing.samples if open_.end is None else open_.end
        silence_s = (self._hearing.samples + supposed - end) / ASR_RATE_HZ
        open_.turn.take(open_.guessed)
        open_.turn.mark(TurnMark.SPEECH_END, now - silence_s)
        open_.turn.mark(TurnMark.ENDPOINT, now)
        item = MessageItem(open_.utterance.id, "user", (AudioPart(),))
        if open_.is_announced:
            self._emit(SpeechStopped(item.id, _ms(end)))
        previous = self._history.add(item)
        self._emit(InputCommitted(item.id, previous))
        self._emit(ItemAdded(item, previous))
        self._emit(ItemDone(item, previous))
        self._transcribing += 1
        tasks.create_task(self._transcribe(open_, tasks), name=f"transcribe-{item.id}")

    async def _transcribe(self, open_: OpenUtterance, tasks: asyncio.TaskGroup) -> None:
        """Reports the final transcript of a committed utterance, or the error that prevented it."""
        item_id, turn = open_.utterance.id, open_.turn
        try:
            self._engines.check_hears(open_.settings)
            result = await final_result(open_, self._reactions, lambda: self._alone(open_, tasks))
        except (EngineError, OverloadedError, RequestError) as exc:
            self._transcribing -= 1
            open_.give_up()
            logger.warning("! utterance %s: %s (%s)", item_id, exc, exc.code)
            self._emit(TranscriptionFailed(item_id, exc.code, str(exc)))
            self._reactions.not_understood(turn, exc)
            return
        except asyncio.CancelledError:
            open_.give_up()
            self._reactions.abandoned(turn)
            raise
        self._transcribing -= 1
        open_.said.tell(result.text)
        turn.mark(TurnMark.ASR_FINAL, open_.known_at(result.text, self._clock.now()))
        self._history.replace(MessageItem(item_id, "user", (AudioPart(result.text),)))
        audio_s = round(samples_to_ms(open_.said.samples, ASR_RATE_HZ) / 1000, 3)
        logprobs = tuple((token.data, token.logprob) for token in result.tokens) or None
        self._emit(TranscriptionCompleted(item_id, result.text, audio_s, result.language, logprobs))
        self._reactions.understood(turn, result)

    async def _alone(self, open_: OpenUtterance, tasks: asyncio.TaskGroup) -> AsrResult:
        """Decodes only the new audio of an utterance that continues another. Raises EngineError,
        OverloadedError."""
        utterance = self._utterance(f"{open_.utterance.id}.alone", open_.settings, tasks)
        utterance.push(open_.said.audio.pcm())
        try:
            return await utterance.finish()
        except BaseException:
            utterance.discard()
            raise


def _ms(samples: int) -> int:
    return max(0, round(samples_to_ms(samples, ASR_RATE_HZ)))
