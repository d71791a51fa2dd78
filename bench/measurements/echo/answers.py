"""Simulates one answer through a room, as a session processes it: paced frames, guard,
interruption."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.measurements.echo.rooms import EchoRoom, echo, microphone
from core.audio import ASR_RATE_HZ, PTIME_MS, AudioFrame, Pcm, ms_to_samples, samples_to_ms
from engines.base import VadEngine
from media.pcm import dbfs
from media.processing.echo import EchoControl
from pipeline.shared.settings import TurnDetection
from pipeline.user_turn.speech_detection.endpointing import EdgeKind
from pipeline.user_turn.speech_detection.speech_detector import SpeechDetector

FRAME = ms_to_samples(PTIME_MS, ASR_RATE_HZ)
"Samples of a frame of 20 ms at 16 kHz."

SETTLED = ms_to_samples(2000, ASR_RATE_HZ)
"""Samples after the first audio in which the canceller adapts; the cancellation is measured after
them."""


@dataclass(frozen=True, slots=True)
class Interrupter:
    """A person who speaks over the answer."""

    pcm: Pcm
    at: int
    "Sample at which the person begins."


@dataclass(slots=True)
class SpeechOnset:
    """Speech that the session detected."""

    at: int
    "First sample of the speech."
    detected_at: int
    "Number of received samples when the detection was certain."
    speech: list[Pcm] = field(default_factory=list)


@dataclass(slots=True)
class EchoRun:
    """Result of one simulation."""

    starts: list[SpeechOnset]
    microphone_audio: Pcm
    cleaned: Pcm
    cpu_s: float
    "Processor time of the canceller alone."
    first_sound: int

    @property
    def erle_db(self) -> float:
        """Echo return loss enhancement: how much quieter the microphone became after the canceller
        adapted."""
        from_here = self.first_sound + SETTLED
        return dbfs(self.microphone_audio[from_here:]) - dbfs(self.cleaned[from_here:])

    @property
    def cpu_percent(self) -> float:
        """Processor use of the canceller in percent of one core, for audio in real time."""
        return 100_000 * self.cpu_s / samples_to_ms(len(self.microphone_audio), ASR_RATE_HZ)


def talk(
    echoes: EchoControl,
    played: Pcm,
    scene: EchoRoom | None,
    vad: VadEngine,
    person: Interrupter | None = None,
) -> EchoRun:
    """Plays the answer `played` into the room `scene` (None: headphones); `person` may interrupt.

    As in a session the answer stops at the first detected speech, if there is a person.
    """
    detector = SpeechDetector(vad.open())
    detector.configure(TurnDetection())
    microphone_audio = _microphone_audio(played, scene, person)
    last = int(np.flatnonzero(played)[-1])
    starts: list[SpeechOnset] = []
    cleaned: list[Pcm] = []
    cpu_s = 0.0
    for at in range(0, len(played) - FRAME + 1, FRAME):
        begun = time.process_time()
        if at <= last:
            echoes.play(played[at : at + FRAME], at)
        clean = echoes.clean(microphone_audio[at : at + FRAME], at)
        cpu_s += time.process_time() - begun
        cleaned.append(clean)
        detector.guard(is_guarded=at <= last or echoes.is_sounding(at))
        if _listen(detector, AudioFrame(clean, ASR_RATE_HZ, at), starts) and person is not None:
            last = min(last, at)
            microphone_audio = _microphone_audio(played, scene, person, until=at + FRAME)
    first_sound = int(np.flatnonzero(played)[0])
    return EchoRun(
        starts,
        microphone_audio[: len(cleaned) * FRAME],
        np.concatenate(cleaned),
        cpu_s,
        first_sound,
    )


def _listen(detector: SpeechDetector, frame: AudioFrame, starts: list[SpeechOnset]) -> bool:
    """Returns True if speech began in this frame."""
    begins = False
    for piece in detector.push(frame):
        if piece.edge is not None and piece.edge.kind is EdgeKind.STARTED:
            starts.append(SpeechOnset(piece.edge.at, detector.samples))
            begins = True
        if piece.in_speech:
            starts[-1].speech.append(piece.pcm)
    return begins


def _microphone_audio(
    played: Pcm, scene: EchoRoom | None, person: Interrupter | None, until: int | None = None
) -> Pcm:
    echoed = echo(played, scene, until) if scene is not None else np.zeros(len(played))
    if person is None:
        return microphone(echoed)
    return microphone(echoed, person.pcm, person.at)


def interruption(starts: Sequence[SpeechOnset], person: Interrupter) -> SpeechOnset | None:
    """Returns the detected speech that belongs to this person; None: it was missed."""
    early = ms_to_samples(300, ASR_RATE_HZ)
    for start in starts:
        if person.at - early <= start.at < person.at + len(person.pcm):
            return start
    return None
