"""Decides when a session listens: from its wake word until the conversation pauses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, ms_to_samples
from core.conversation.events import (
    PlayoutCleared,
    PlayoutStopped,
    ResponseDone,
    SessionEvent,
    TimeoutTriggered,
    TranscriptionCompleted,
    WakeStateChanged,
)
from core.errors import RequestError
from engines.base.wake import (
    WakeWord,
    WakeWordDetection,
    WakeWordDetector,
    find_wake_word,
    stop_words,
)
from pipeline.services import SessionServices
from pipeline.shared.plugin_errors import StreamErrors, plugin_errors
from pipeline.shared.settings import SessionSettings

FOLLOW_UP_S = 8.0
"""Silence after the wake word, or after an answer was played, that ends listening. It is long
enough to think of the next question, and short enough not to record a private talk that begins
later."""

HELD_MS = 600
"""Length of the delay line: more than an engine needs to report a word after its end. Some 100 ms,
and a whole step of its model with one of sherpa-onnx, whose steps have up to 320 ms."""


class ActivitySource(Protocol):
    """Present activity of a session, as far as the gate needs it."""

    @property
    def is_busy(self) -> bool:
        """True if the user speaks, a transcript is not known yet, or a response is made or
        played."""
        ...

    @property
    def answered_until(self) -> float:
        """Monotonic seconds at which the client has played all that it was sent."""
        ...


class SoundingAnswer(Protocol):
    """The answer or announcement that sounds, as far as the gate needs it."""

    @property
    def ends_only_by_word(self) -> bool:
        """True while an answer sounds that only a wake word or a stop word ends."""
        ...

    def wake_word_detected(self, later_samples: int) -> None:
        """Ends the answer; a turn of the user begins. `later_samples`: audio since the end of the
        word, without the frame in which it was detected."""
        ...

    def stop_word_detected(self) -> None:
        """Ends the answer, and drops the utterance that holds the word."""
        ...


@dataclass(slots=True)
class WakeState:
    """State of a session: asleep or awake. Its methods take the time in monotonic seconds."""

    until: float | None = None
    "Monotonic seconds at which it falls asleep if nothing happens; None: it is asleep."

    def wake(self, now: float) -> None:
        """Wakes the session for `FOLLOW_UP_S`."""
        self.until = now + FOLLOW_UP_S

    def extend(self, now: float) -> None:
        """Extends the time awake by `FOLLOW_UP_S` from now, because speech led to a result. Noise
        or a television keep the session awake only while they last. A sleeping session stays
        asleep."""
        if self.until is not None:
            self.until = max(self.until, now + FOLLOW_UP_S)

    def update_asleep(self, now: float, *, is_busy: bool, answered_until: float = 0.0) -> bool:
        """Returns whether the session is asleep, and puts it to sleep when its time is over. It
        never falls asleep while the user speaks or is answered (`is_busy`). `answered_until`:
        monotonic seconds; read it again for each call, because a client may stop what it plays."""
        if self.until is not None and not is_busy:
            is_over = now >= max(self.until, answered_until + FOLLOW_UP_S)
            self.until = None if is_over else self.until
        return self.until is None


@dataclass(slots=True)
class WakeDelayLine:
    """Delay line of `HELD_MS` while asleep. After a wake word it releases the audio behind the
    word; otherwise it releases silence of the same length, so that sample positions stay true."""

    _pcm: Pcm = field(default_factory=lambda: np.zeros(0, np.int16))

    def __len__(self) -> int:
        return len(self._pcm)

    def push(self, pcm: Pcm) -> int:
        """Adds samples. Returns how many old ones it dropped, as it holds no more than
        `HELD_MS`."""
        both = np.concatenate([self._pcm, pcm])
        over = max(0, len(both) - ms_to_samples(HELD_MS, ASR_RATE_HZ))
        self._pcm = both[over:]
        return over

    def release(self, latest: int = 0) -> Pcm:
        """Empties the line. Returns all it held, with silence in place of all but the `latest`
        samples."""
        pcm, self._pcm = self._pcm, np.zeros(0, np.int16)
        silent = max(0, len(pcm) - latest)
        return np.concatenate([np.zeros(silent, np.int16), pcm[silent:]])


class WakeWordGate:
    """Lets a session's audio through only after its wake word. While the session sleeps, silence
    replaces the microphone, so that nothing behind the gate can store or recognise any of it.

    While an answer sounds that only a word ends, it listens for that word, asleep or awake.
    """

    def __init__(
        self,
        services: SessionServices,
        activity: ActivitySource,
        answer: SoundingAnswer,
        emit: Callable[[SessionEvent], None],
    ) -> None:
        engine = self._engine = services.engines.wake
        self._clock, self._metrics = services.clock, services.metrics
        self._activity, self._answer, self._emit = activity, answer, emit
        self._errors = StreamErrors("wake", engine.name if engine else "", self._metrics)
        self._state = WakeState()
        self._word: WakeWord | None = None
        self._stops: tuple[str, ...] = ()
        "Names of the stop words that are looked for."
        self._stream: WakeWordDetector | None = None
        self._is_spotting = False
        "True if the detector was given the audio before this while the session was awake."
        self._detector_position = 0
        "Samples that the detector was given since it was last reset."
        self._delay_line = WakeDelayLine()
        self._answers = True
        self._reprompts = 0
        """Number of times that the assistant spoke by itself (idle timeout) since the user last
        spoke."""

    @property
    def is_asleep(self) -> bool:
        """True if only the wake word can be recognised now."""
        return self._word is not None and self._state.until is None

    def configure(self, settings: SessionSettings) -> None:
        """Applies the settings. A new wake word puts the session to sleep. `EngineSet.check` has
        checked its name. Raises EngineError when the engine cannot open a detector for it."""
        name = settings.wake_word if settings.turn_detection is not None else ""
        self._answers = settings.answers
        stops: tuple[str, ...] = ()
        if self._engine is not None and settings.interruption == "wake_word":
            stops = tuple(word.name for word in stop_words(self._engine))
        is_same_word = name == (self._word.name if self._word else "")
        if not is_same_word or stops != self._stops:
            word = find_wake_word(self._engine, name)
            self._stream, self._is_spotting = self._open(word, stops), False
            self._word, self._stops, self._detector_position = word, stops, 0
        if is_same_word:
            # repeat the event: the client may have asked for it only with these settings
            if self._word is not None:
                self._report(is_awake=self._state.until is not None)
            return
        self._state = WakeState()
        self._report(is_awake=self._word is None)

    def filter(self, frame: AudioFrame) -> AudioFrame:
        """Returns the frame (16 kHz) while awake, and silence while asleep. On the wake word,
        returns the audio behind the word."""
        if self._stream is None:
            return self._pass_through(frame)
        if self._word is None:
            return self._pass_awake(self._stream, frame)
        was_awake = self._state.until is not None
        now = self._clock.now()
        is_busy, until = self._activity.is_busy, self._activity.answered_until
        if not self._state.update_asleep(now, is_busy=is_busy, answered_until=until):
            return self._pass_awake(self._stream, frame)
        if was_awake:
            self._restart(self._stream)
            self._report(is_awake=False)
        ends_answer = self._answer.ends_only_by_word
        detections = self._detect(self._stream, frame.pcm)
        found = [one for one in detections if one.name not in self._stops]
        if ends_answer and detections and not found:
            self._answer.stop_word_detected()
        over = np.zeros(self._delay_line.push(frame.pcm), np.int16)
        if not found:
            start = frame.end - len(self._delay_line) - len(over)
            return frame._replace(pcm=over, start=start)
        if ends_answer:
            self._answer.wake_word_detected(0)
        self._state.wake(now)
        self._reprompts = 0
        self._report(is_awake=True)
        pcm = np.concatenate(
            [over, self._delay_line.release(self._detector_position - found[-1].word_end)]
        )
        return frame._replace(pcm=pcm, start=frame.end - len(pcm))

    def _pass_awake(self, stream: WakeWordDetector, frame: AudioFrame) -> AudioFrame:
        """Returns the frame of an awake session, after it has looked for the words that end the
        answer which sounds."""
        if not self._answer.ends_only_by_word:
            self._is_spotting = False
            return self._pass_through(frame)
        if not self._is_spotting:
            self._restart(stream)
            self._is_spotting = True
        assert self._stream is not None
        detections = self._detect(self._stream, frame.pcm)
        woken = [one for one in detections if one.name not in self._stops]
        if woken:
            later = self._detector_position - woken[-1].word_end - len(frame.pcm)
            self._answer.wake_word_detected(max(0, later))
            self._state.wake(self._clock.now())
            self._report(is_awake=True)
        elif detections:
            self._answer.stop_word_detected()
        return self._pass_through(frame)

    def _restart(self, stream: WakeWordDetector) -> None:
        self._detector_position = 0
        self._errors.attempt(stream.reset, self._renew)

    def _open(self, word: WakeWord | None, stops: tuple[str, ...]) -> WakeWordDetector | None:
        """Opens a detector for the words; None if there are none. Raises EngineError."""
        names = [*((word.name,) if word else ()), *stops]
        if not names or self._engine is None:
            return None
        with plugin_errors("wake", self._engine.name, self._metrics):
            return self._engine.open(names)

    def _detect(self, stream: WakeWordDetector, pcm: Pcm) -> tuple[WakeWordDetection, ...]:
        """Returns the wake words that end in `pcm`. If the engine raises, returns none and opens a
        new detector."""
        self._detector_position += len(pcm)
        return self._errors.attempt(lambda: stream.push(pcm), self._renew)

    def _renew(self) -> tuple[WakeWordDetection, ...]:
        """Opens a new detector after an error. Returns no words: the new one has had no audio
        yet."""
        word, stops = self._word, self._stops
        self._stream = self._errors.attempt(lambda: self._open(word, stops), lambda: self._stream)
        self._detector_position = 0
        return ()

    def _pass_through(self, frame: AudioFrame) -> AudioFrame:
        """Returns the frame, after silence in place of what the delay line still holds."""
        if not len(self._delay_line):
            return frame
        pcm = np.concatenate([self._delay_line.release(), frame.pcm])
        return frame._replace(pcm=pcm, start=frame.end - len(pcm))

    def check_awake(self) -> None:
        """Raises RequestError input_audio_buffer_commit_empty while asleep, as all audio is silence
        then."""
        if self.is_asleep and self._word is not None:
            raise RequestError(
                f"speech is ignored until the wake word {self._word.name!r} is detected",
                code="input_audio_buffer_commit_empty",
            )

    def on_event(self, event: SessionEvent) -> None:
        """Takes an event that was sent to the client, to keep the session awake after answers."""
        match event:
            case ResponseDone() | PlayoutStopped() | PlayoutCleared():
                # more than one reprompt to an empty room would go on without end
                if self._reprompts <= 1:
                    self._state.extend(self._clock.now())
            case TimeoutTriggered():
                self._reprompts += 1
            case TranscriptionCompleted(transcript=words) if words:
                self._reprompts = 0
                if not self._answers:
                    self._state.extend(self._clock.now())
            case _:
                pass

    def _report(self, *, is_awake: bool) -> None:
        name, phrase = (self._word.name, self._word.phrase) if self._word else ("", "")
        self._emit(WakeStateChanged(name, phrase, is_awake))
