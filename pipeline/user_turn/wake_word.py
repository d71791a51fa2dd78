"""When a session listens: from its wake word until nobody goes on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, ms_to_samples
from core.errors import RequestError
from core.events import (
    PlayoutCleared,
    PlayoutStopped,
    ResponseDone,
    SessionEvent,
    TimeoutTriggered,
    TranscriptionCompleted,
    WakeStateChanged,
)
from core.ports import Clock, Metrics
from engines.base.wake import (
    WakeWord,
    WakeWordDetection,
    WakeWordDetector,
    WakeWordEngine,
    find_word,
)
from pipeline.shared.plugin_errors import StreamErrors, plugin_errors
from pipeline.shared.settings import SessionSettings

FOLLOW_UP_S = 8.0
"""Silence after the wake word, or after an answer was heard, that ends listening: long enough to
think of the next question, short enough that a talk which begins afterwards is not overheard."""

HELD_MS = 200
"More than any engine knows of, between the end of a word and when it is told."


class ActivitySource(Protocol):
    """What a session does."""

    @property
    def is_hearing(self) -> bool:
        """Somebody speaks, or what was said is not known yet."""
        ...

    @property
    def is_answering(self) -> bool:
        """An answer is made or played."""
        ...

    @property
    def answered_until(self) -> float:
        """When the client has played all that it was sent; monotonic seconds."""
        ...


@dataclass(slots=True)
class WakeState:
    """Asleep or awake. Takes the time, in monotonic seconds."""

    until: float | None = None
    "When it falls asleep, if nothing happens; None: it sleeps."

    def wake(self, now: float) -> None:
        self.until = now + FOLLOW_UP_S

    def answered(self, now: float) -> None:
        """What was said came to something. Noise and a television keep it awake while they last,
        but only this begins the time anew; it wakes nobody."""
        if self.until is not None:
            self.until = max(self.until, now + FOLLOW_UP_S)

    def sleeps(self, now: float, *, is_busy: bool, answered_until: float = 0.0) -> bool:
        """Whether it sleeps now. Whoever speaks or is answered is not left in the middle.
        `answered_until`: as it is now, for a client may stop what it plays."""
        if self.until is not None and not is_busy:
            is_over = now >= max(self.until, answered_until + FOLLOW_UP_S)
            self.until = None if is_over else self.until
        return self.until is None


@dataclass(slots=True)
class WakeDelayLine:
    """The latest sound, while it is not known whether a wake word has ended in it: what is behind
    the gate gets it late, as silence, or at once, so that it is at the same time as the client."""

    _pcm: Pcm = field(default_factory=lambda: np.zeros(0, np.int16))

    def __len__(self) -> int:
        return len(self._pcm)

    def push(self, pcm: Pcm) -> int:
        """How many samples are older than it holds, and are let go."""
        both = np.concatenate([self._pcm, pcm])
        over = max(0, len(both) - ms_to_samples(HELD_MS, ASR_RATE_HZ))
        self._pcm = both[over:]
        return over

    def release(self, latest: int = 0) -> Pcm:
        """All that it holds, silent but for the `latest` samples."""
        pcm, self._pcm = self._pcm, np.zeros(0, np.int16)
        silent = max(0, len(pcm) - latest)
        return np.concatenate([np.zeros(silent, np.int16), pcm[silent:]])


class WakeWordGate:
    """One session's. While it sleeps, silence takes the place of what the microphone hears, so that
    nothing behind it can keep or recognise any of it."""

    def __init__(
        self,
        engine: WakeWordEngine | None,
        clock: Clock,
        metrics: Metrics,
        doing: ActivitySource,
        emit: Callable[[SessionEvent], None],
    ) -> None:
        self._engine, self._clock, self._doing, self._emit = engine, clock, doing, emit
        self._metrics = metrics
        self._errors = StreamErrors("wake", engine.name if engine else "", metrics)
        self._attention = WakeState()
        self._word: WakeWord | None = None
        self._stream: WakeWordDetector | None = None
        self._heard = 0
        "Samples that the stream was given since it began anew."
        self._held = WakeDelayLine()
        self._answers = True
        self._unasked = 0
        "How often the assistant went on by itself since something was said."

    @property
    def is_asleep(self) -> bool:
        """Nothing is heard but the wake word."""
        return self._stream is not None and self._attention.until is None

    def configure(self, settings: SessionSettings) -> None:
        """A word that was not the session's before puts it to sleep. Checked by `find_word`. Raises
        EngineError where the engine opens no stream for it."""
        name = settings.wake_word if settings.turn_detection is not None else ""
        self._answers = settings.answers
        if name == (self._word.name if self._word else ""):
            if self._word is not None:  # whoever asks for the event now knows how things are
                self._tell(is_awake=self._attention.until is not None)
            return
        word, stream = find_word(self._engine, name), None
        if word is not None and self._engine is not None:
            with plugin_errors("wake", self._engine.name, self._metrics):
                stream = self._engine.open([name])
        self._word, self._stream, self._heard = word, stream, 0
        self._attention = WakeState()
        self._tell(is_awake=self._word is None)

    def heard(self, frame: AudioFrame) -> AudioFrame:
        """What may be heard of a frame, 16 kHz."""
        if self._stream is None:
            return self._all(frame)
        was_awake = self._attention.until is not None
        now = self._clock.now()
        is_busy = self._doing.is_hearing or self._doing.is_answering
        until = self._doing.answered_until
        if not self._attention.sleeps(now, is_busy=is_busy, answered_until=until):
            return self._all(frame)
        if was_awake:
            self._heard = 0
            self._errors.attempt(self._stream.reset, self._renew)
            self._tell(is_awake=False)
        found = self._found(self._stream, frame.pcm)
        over = np.zeros(self._held.push(frame.pcm), np.int16)
        if not found:
            start = frame.end - len(self._held) - len(over)
            return frame._replace(pcm=over, start=start)
        self._attention.wake(now)
        self._unasked = 0
        self._tell(is_awake=True)
        pcm = np.concatenate([over, self._held.release(self._heard - found[-1].ended)])
        return frame._replace(pcm=pcm, start=frame.end - len(pcm))

    def _found(self, stream: WakeWordDetector, pcm: Pcm) -> tuple[WakeWordDetection, ...]:
        """An engine that raises has heard nothing, and goes on with a new stream."""
        self._heard += len(pcm)
        return self._errors.attempt(lambda: stream.push(pcm), self._renew)

    def _renew(self) -> tuple[WakeWordDetection, ...]:
        """No word is in what a new stream has heard."""
        if self._engine is not None and self._word is not None:
            names, open_ = [self._word.name], self._engine.open
            self._stream = self._errors.attempt(lambda: open_(names), lambda: self._stream)
            self._heard = 0
        return ()

    def _all(self, frame: AudioFrame) -> AudioFrame:
        """The frame; before it silence for what is held, if it was put to sleep and let be."""
        if not len(self._held):
            return frame
        pcm = np.concatenate([self._held.release(), frame.pcm])
        return frame._replace(pcm=pcm, start=frame.end - len(pcm))

    def check_awake(self) -> None:
        """Raises RequestError input_audio_buffer_commit_empty: all that came is silence."""
        if self.is_asleep and self._word is not None:
            raise RequestError(
                f"nothing is heard before the wake word {self._word.name!r} is said",
                code="input_audio_buffer_commit_empty",
            )

    def noted(self, event: SessionEvent) -> None:
        """Something was told to the client."""
        match event:
            case ResponseDone() | PlayoutStopped() | PlayoutCleared():
                if self._unasked <= 1:  # to an empty room it would go on for ever
                    self._attention.answered(self._clock.now())
            case TimeoutTriggered():
                self._unasked += 1
            case TranscriptionCompleted(transcript=words) if words:
                self._unasked = 0
                if not self._answers:
                    self._attention.answered(self._clock.now())
            case _:
                pass

    def _tell(self, *, is_awake: bool) -> None:
        name, phrase = (self._word.name, self._word.phrase) if self._word else ("", "")
        self._emit(WakeStateChanged(name, phrase, is_awake))
