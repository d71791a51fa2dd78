"""Turns microphone frames into committed utterances with their transcripts."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, ms_to_samples, samples_to_ms
from core.conversation.events import (
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
from core.conversation.ids import new_id
from core.conversation.items import AudioPart, MessageItem
from core.errors import EngineError, OverloadedError, RequestError
from core.ports import Clock
from engines.base import AsrResult
from pipeline.conversation.history import History
from pipeline.services import EngineSet
from pipeline.shared.settings import SessionSettings
from pipeline.shared.spoken_codes import NO_CODES, SpokenCodes
from pipeline.shared.turn import Turn, TurnMark
from pipeline.transcription.former_speech import MAX_TOGETHER_MS
from pipeline.transcription.no_speech import NoSpeechCriterion
from pipeline.transcription.stream import TranscriptStream
from pipeline.user_turn.continuation import Continuation, ContinuationWindow, UtteranceRecord
from pipeline.user_turn.events import (
    InputActivity,
    PartialTranscripts,
    TurnResponder,
    UserSpeechDropped,
    UserSpeechPaused,
    UserSpeechResumed,
    UserSpeechStarted,
    UserTurnAbandoned,
    UserTurnFailed,
    UserTurnMaybeOver,
    UserTurnTranscribed,
)
from pipeline.user_turn.speaker import SpeakerListener
from pipeline.user_turn.speech_detection.endpoint_timer import EndpointTimer
from pipeline.user_turn.speech_detection.endpointing import EdgeKind, SpeechEdge
from pipeline.user_turn.speech_detection.speech_detector import DetectedFrame, SpeechDetector
from pipeline.user_turn.turn_detection import TurnDetector
from pipeline.user_turn.utterance import OpenUtterance, final_result

logger = logging.getLogger(__name__)

MIN_COMMIT_MS = 100
"Shortest audio that a client may commit. OpenAI's service has the same limit."

MAX_HELD_MS = 328_000
"""Longest audio in push-to-talk that is kept without a commit or a clear. The longest audio of one
event, 15 MiB at 24 kHz, fits in; nobody speaks for longer to an assistant."""


CODE_ONLY = "(code)"
"Words of an utterance that was only a code, which the language model asked for."


class UserTurnController:
    """Detects, commits and transcribes the user's utterances of one session.

    With `turn_detection` in the settings, a pause commits an utterance. Without it (push to talk),
    `commit` does. Reports events to a `TurnResponder`, emits events for the client, and adds a
    message item to the history:

        controller.listen(frame)  # each microphone frame of 16 kHz
        controller.commit()  # push to talk: the utterance is over
    """

    def __init__(
        self,
        detector: SpeechDetector,
        engines: EngineSet,
        history: History,
        settings: Callable[[], SessionSettings],
        activity: InputActivity,
        responder: TurnResponder,
        clock: Clock,
        emit: Callable[[SessionEvent], None],
        tasks: asyncio.TaskGroup,
        speakers: SpeakerListener,
        codes: SpokenCodes = NO_CODES,
    ) -> None:
        """Takes the parts of the session. `activity`: the controller keeps it up to date.
        `speakers`: recognises people by their voices. `codes`: are taken out of transcripts.
        `tasks`: the session's group; it must have been entered before the first frame. `settings`:
        returns the settings in force."""
        self._detector, self._engines, self._history = detector, engines, history
        self._settings, self._activity, self._responder = settings, activity, responder
        self._clock, self._emit, self._tasks = clock, emit, tasks
        self._turn_detector = TurnDetector(
            engines.endpoint, responder.is_unfinished_command, self._set_delay, tasks
        )
        self._endpoint_timer = EndpointTimer(detector, clock)
        self._speakers, self._codes = speakers, codes
        self._window = ContinuationWindow()
        self._open: OpenUtterance | None = None
        self._uncommitted = 0
        "Samples since the last commit or clear (push-to-talk)."

    def is_ending_within(self, seconds: float) -> bool:
        """Returns whether the utterance ends within `seconds` if the user stays silent. A WebRTC
        call then holds back its next silent packet, so that the answer's first sound can take its
        place."""
        return self._endpoint_timer.is_due_within(seconds)

    async def run(self) -> None:
        """Ends utterances whose silence is over between two frames. Runs until it is cancelled."""
        await self._endpoint_timer.run(self._end_early)

    def listen(self, frame: AudioFrame) -> None:
        """Takes the next microphone frame. Raises RequestError when it is not 16 kHz."""
        self._endpoint_timer.frame_arrived(len(frame.pcm))
        for detected in self._detector.push(frame):
            self._take_frame(detected)
        self._endpoint_timer.update()

    def commit(self) -> None:
        """Commits the utterance at the client's request. Raises RequestError
        input_audio_buffer_commit_empty when there is less than `MIN_COMMIT_MS` of audio."""
        utterance = self._open
        if utterance is None:
            if samples_to_ms(self._uncommitted, ASR_RATE_HZ) < MIN_COMMIT_MS:
                raise RequestError(
                    f"the input audio buffer holds less than {MIN_COMMIT_MS} ms of audio",
                    code="input_audio_buffer_commit_empty",
                )
            # None of the audio was speech: commit the newest audio, which the detector still keeps
            # as pre-roll.
            recent = self._detector.recent()
            start = self._detector.samples - len(recent)
            utterance = self._begin(start, 0, is_announced=False)
            utterance.stream.push(recent)
        self._detector.reset()
        self._finish(utterance)
        self._window.forget()  # the client has said that it is over, so nothing may continue it

    def clear(self) -> None:
        """Drops audio that is not committed, and the utterance that is open."""
        self.drop_utterance(0)
        self._emit(InputCleared())

    def drop_utterance(self, kept_samples: int) -> None:
        """Drops the open utterance: a word in it ended an answer. The newest `kept_samples`, which
        came after the word, may begin the next one."""
        held = self._detector.recent() if self._open is None else self._open.stream.open_pcm()
        self._detector.reset(held[max(0, len(held) - kept_samples) :])
        self._window.forget()
        self._uncommitted = 0
        if self._open is not None:
            self._open.give_up()
            if self._open.is_announced:
                self._emit(SpeechDiscarded(self._open.stream.id))
            self._responder.handle(UserSpeechDropped(self._open.turn))
            self._close_open()

    def close(self) -> None:
        """Frees what a recogniser keeps for the utterance that the end of the session cuts off."""
        if self._open is not None:
            self._open.stream.discard()
            self._close_open()

    def _close_open(self) -> None:
        self._open = None
        self._activity.is_speaking = False

    def _take_frame(self, detected: DetectedFrame) -> None:
        """Takes one VAD frame: feeds the open utterance, and handles an edge of speech."""
        # Without an open utterance, a push-to-talk client may still commit this audio.
        self._uncommitted += len(detected.pcm) if self._open is None else 0
        kind = detected.edge.kind if detected.edge else None
        if kind is EdgeKind.STARTED and self._open is None:
            self._start(detected)
            return
        utterance = self._open
        if utterance is None:
            self._window.push(detected.pcm)
            return
        if utterance.stream.audio_ms >= MAX_HELD_MS:
            self._refuse_more(utterance)
        else:
            utterance.stream.push(detected.pcm)
        utterance.record.evidence.push(detected.probability, len(detected.pcm))
        if detected.edge is None:
            return
        # Also in push to talk: the settings may have changed during the pause.
        if kind is EdgeKind.RESUMED:
            utterance.end = None
            utterance.pause_marks.clear()
            utterance.provisional = None
            self._turn_detector.end()
            utterance.stream.resume()
            self._speakers.drop(utterance)
            self._responder.handle(UserSpeechResumed(utterance.turn))
        elif kind is EdgeKind.CANDIDATE:
            self._pause(utterance, detected.edge)
        elif kind is EdgeKind.ENDED:
            utterance.end = detected.edge.at
            self._finish(utterance)
            self._window.remember(utterance.record)

    def _end_early(self) -> None:
        """Ends the utterance by the timer, when the rest of its silence has passed without a
        frame."""
        missing, utterance = self._detector.missing_samples, self._open
        ended = self._detector.end_early()
        if missing is not None and ended is not None and utterance is not None:
            utterance.end = ended.at
            self._finish(utterance, assumed_samples=missing)
            self._window.remember(utterance.record)

    def _set_delay(self, probability: float | None, pause: int) -> None:
        self._detector.set_delay(probability, pause)
        self._endpoint_timer.update()

    def _pause(self, utterance: OpenUtterance, pause: SpeechEdge) -> None:
        """Begins the work that can be done during the pause: a decode of all speech so far, and
        turn detection."""
        detection, heard_until = self._settings().turn_detection, pause.until - utterance.start
        self._speakers.begin(utterance)
        if detection is None:
            # push to talk: only the client ends the utterance, so no turn detection is needed
            utterance.stream.prepare(heard_until)
            return
        if detection.kind == "semantic_vad":
            self._turn_detector.begin(pause.at, utterance.stream.open_pcm())
        utterance.end = pause.at
        utterance.pause_marks[TurnMark.CANDIDATE] = self._clock.now()
        self._responder.handle(UserSpeechPaused(utterance.turn))
        utterance.stream.prepare(heard_until, partial(self._on_provisional, utterance))

    def _on_provisional(self, utterance: OpenUtterance, result: AsrResult) -> None:
        """Takes the transcript of all speech before a pause, before it is known whether the
        utterance is over."""
        provisional = utterance.set_provisional(result, self._clock.now())
        provisional = self._without_codes(utterance.turn, provisional)
        self._turn_detector.take_words(self._codes.take(result.text)[0], result.language)
        self._responder.handle(UserTurnMaybeOver(utterance.turn, provisional))

    def _refuse_more(self, utterance: OpenUtterance) -> None:
        if not utterance.is_full:
            utterance.is_full = True
            limit_s = MAX_HELD_MS // 1000
            message = f"the input audio buffer is full ({limit_s} s): commit or clear it"
            self._emit(ErrorEvent("input_audio_buffer_full", message, is_clients=True))

    def _start(self, detected: DetectedFrame) -> None:
        """Opens an utterance at the start of speech."""
        assert detected.edge is not None
        is_announced = self._settings().turn_detection is not None
        start = self._detector.samples - len(detected.pcm)
        former = self._window.former(detected.edge.at, self._settings())
        continuation, former_pcm = self._continuation(detected.edge.at, start) or (None, None)
        before = detected.edge.at - start
        utterance = self._begin(start, before, continuation, former_pcm, is_announced=is_announced)
        if continuation is None and former is not None:
            former.limit_former(ms_to_samples(MAX_TOGETHER_MS, ASR_RATE_HZ))
            utterance.record.former = former
            utterance.stream.former_speech = utterance.record.former_speech
        utterance.stream.push(detected.pcm)
        spoken = self._detector.samples - detected.edge.at
        # The frames before this one had as high a probability: together they made the start.
        utterance.record.evidence.push(detected.probability, spoken)
        utterance.turn.mark(TurnMark.SPEECH_START, self._clock.now() - spoken / ASR_RATE_HZ)
        if is_announced:
            self._emit(SpeechStarted(utterance.stream.id, _ms(start)))
        self._responder.handle(UserSpeechStarted(utterance.turn, continuation))

    def _continuation(self, speech: int, start: int) -> tuple[Continuation, Pcm] | None:
        """Links the utterance to the one before it, if no answer to that is well under way. Returns
        the link, and the audio before the utterance."""
        last = self._window.last(speech, self._settings())
        if last is None or not self._responder.may_continue(last.turn):
            return None
        return self._window.continue_from(last, start)

    def _begin(
        self,
        start: int,
        before_speech: int,
        continuation: Continuation | None = None,
        former_pcm: Pcm | None = None,
        *,
        is_announced: bool,
    ) -> OpenUtterance:
        """Opens an utterance, beginning with the audio of the one that it continues, if any.
        `before_speech`: samples of its own audio before the speech."""
        self._window.forget()
        settings = self._settings()
        item_id = new_id("item")
        if continuation is not None:
            before_speech = continuation.former.before_speech
        stream = self._open_stream(item_id, settings, before_speech)
        turn = Turn(new_id("turn"), item_id)
        partials = PartialTranscripts(turn, self._responder.handle, self._emit)
        stream.follow(partials.hypothesis, partials.failed, partials.nothing_heard)
        record = UtteranceRecord(turn, settings, start, stream.audio, before_speech=before_speech)
        if continuation is not None and former_pcm is not None:
            stream.push(former_pcm)
            record.own_start, record.continuation = len(former_pcm), continuation
            record.evidence = continuation.evidence
            record.former_evidence = continuation.former.all_evidence
        self._open = OpenUtterance(stream, record, is_announced, self._criterion(settings))
        self._activity.is_speaking = True
        return self._open

    def _criterion(self, settings: SessionSettings) -> NoSpeechCriterion:
        """Returns the criterion for speech. In push to talk the client says when the user speaks,
        so nothing is filtered, unless the configuration is strict."""
        if settings.turn_detection is None and self._engines.no_speech != "strict":
            return NoSpeechCriterion.NONE
        return self._engines.no_speech_criterion(settings.asr, settings.no_speech_threshold)

    def _open_stream(
        self, utterance_id: str, settings: SessionSettings, before_speech: int | None = None
    ) -> TranscriptStream:
        recogniser = self._engines.recogniser(settings.asr)
        requested = settings.recognition(recogniser.info, self._engines.expected_names())
        options = self._engines.recognition(requested)
        return TranscriptStream(
            recogniser,
            utterance_id,
            options,
            self._clock,
            self._tasks,
            self._engines.on_wasted,
            before_speech=before_speech,
        )

    def _finish(self, utterance: OpenUtterance, *, assumed_samples: int = 0) -> None:
        """Commits the utterance: the client learns of the item, and its transcription begins.
        `assumed_samples`: samples of silence that are assumed but have not arrived."""
        self._close_open()
        self._uncommitted = 0
        self._turn_detector.end()
        utterance.stream.end()
        now = self._clock.now()
        end = self._detector.samples if utterance.end is None else utterance.end
        silence_s = (self._detector.samples + assumed_samples - end) / ASR_RATE_HZ
        utterance.turn.take(utterance.pause_marks)
        utterance.turn.mark(TurnMark.SPEECH_END, now - silence_s)
        utterance.turn.mark(TurnMark.ENDPOINT, now)
        item = MessageItem(utterance.stream.id, "user", (AudioPart(),))
        if utterance.is_announced:
            self._emit(SpeechStopped(item.id, _ms(end)))
        previous = self._history.add(item)
        self._emit(InputCommitted(item.id, previous))
        self._emit(ItemAdded(item, previous))
        self._emit(ItemDone(item, previous))
        self._speakers.report(utterance)
        self._activity.utterances_due += 1
        self._tasks.create_task(self._transcribe(utterance), name=f"transcribe-{item.id}")

    async def _transcribe(self, utterance: OpenUtterance) -> None:
        """Reports the final transcript of a committed utterance, or the error that prevented it."""
        item_id, turn = utterance.stream.id, utterance.turn
        try:
            self._engines.check_spoken_language(utterance.settings)
            decode_new_audio = partial(self._decode_new_audio, utterance)
            result = await final_result(utterance, self._responder, decode_new_audio)
        except (EngineError, OverloadedError, RequestError) as exc:
            self._activity.utterances_due -= 1
            utterance.give_up()
            logger.warning("! utterance %s: %s (%s)", item_id, exc, exc.code)
            self._emit(TranscriptionFailed(item_id, exc.code, str(exc)))
            self._responder.handle(UserTurnFailed(turn, exc))
            return
        except asyncio.CancelledError:
            utterance.give_up()
            self._responder.handle(UserTurnAbandoned(turn))
            raise
        self._activity.utterances_due -= 1
        utterance.record.set_text(result.text)
        turn.mark(TurnMark.ASR_FINAL, utterance.known_at(result.text, self._clock.now()))
        result = self._without_codes(turn, result)
        name = turn.fix_prompt_name()
        self._history.replace(MessageItem(item_id, "user", (AudioPart(result.text),), speaker=name))
        audio_s = round(samples_to_ms(utterance.record.samples, ASR_RATE_HZ) / 1000, 3)
        logprobs = tuple((token.data, token.logprob) for token in result.tokens) or None
        self._emit(
            TranscriptionCompleted(
                item_id,
                result.text,
                audio_s,
                result.language,
                logprobs,
                rejected_words=result.rejected_words,
            )
        )
        self._responder.handle(UserTurnTranscribed(turn, result))

    def _without_codes(self, turn: Turn, result: AsrResult) -> AsrResult:
        """Returns the result without the codes of guards, and notes in the turn which were said."""
        text, turn.spoken_codes = self._codes.take(result.text)
        if not turn.spoken_codes:
            return result
        return replace(result, text=text or CODE_ONLY, words=(), segments=(), tokens=())

    async def _decode_new_audio(self, utterance: OpenUtterance) -> AsrResult:
        """Decodes only the new audio of an utterance that continues another. Raises EngineError,
        OverloadedError."""
        stream = self._open_stream(f"{utterance.stream.id}.alone", utterance.settings)
        stream.push(utterance.record.own_pcm())
        try:
            return await stream.finish()
        except BaseException:
            stream.discard()
            raise


def _ms(samples: int) -> int:
    return max(0, round(samples_to_ms(samples, ASR_RATE_HZ)))
