"""Recordings through the real VAD: how long after the last word an utterance ends, and how often it
is cut. "Before" means without the search for the end of the sound."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from bench.client.latency_probe import speech_span
from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, ms_to_samples, samples_to_ms
from engines.base import Vad
from engines.registry import load
from media.files.decode import decode_file
from pipeline.shared.settings import TurnDetection
from pipeline.user_turn.speech_detection.endpointing import EdgeKind
from pipeline.user_turn.speech_detection.speech_detector import SpeechDetector
from pipeline.user_turn.speech_detection.speech_offset import AudibleEnd, SpeechOffset
from tests.shared import shared_data

pytestmark = pytest.mark.real

LEAD_MS, TAIL_MS = 500, 1000
EVERY = 4
"Every fourth recording is used, because all would take a minute."
MAX_MS = 60_000
MAX_SINGLE_MS = 15_000
"Longer recordings do not end with their last sound: only the cuts in them are counted."
VAD_LAG_MS = 80

ROOMS = {
    "digital silence": (None, 0.0),
    "room tone": ("room_tone_leopard_empty.wav", 30.0),
    "noise": ("koala_noise.wav", 20.0),
    "loud noise": ("koala_noise.wav", 10.0),
}
"Noise, and the number of dB that it is below the speech."


@dataclass(frozen=True)
class Clip:
    pcm: Pcm
    end: int | None
    "One past the last sample of speech; None: not known."
    probabilities: list[float]
    "The probabilities of the VAD, frame by frame."


@dataclass
class Measured:
    ends: int = 0
    lags_ms: list[float] = field(default_factory=list)
    "The times from the last sound to the end of the utterance, less the required silence."

    def lag_ms(self, percentile: float) -> float:
        return float(np.percentile(self.lags_ms, percentile))


class Replay:
    """A `Vad` that repeats recorded probabilities."""

    frame_samples = 320

    def __init__(self, probabilities: list[float]) -> None:
        self._probabilities = iter(probabilities)

    def push(self, pcm: Pcm) -> float:
        return next(self._probabilities)

    def reset(self) -> None:
        pass


class Deaf(SpeechOffset):
    def before(self, speech_end: int) -> AudibleEnd | None:
        return None


def power(samples: npt.NDArray[np.float64]) -> float:
    return float(np.mean(np.square(samples)))


def with_noise(pcm: Pcm, noise: Pcm | None, below_db: float) -> Pcm:
    lead, tail = ms_to_samples(LEAD_MS, ASR_RATE_HZ), ms_to_samples(TAIL_MS, ASR_RATE_HZ)
    padded = np.concatenate([np.zeros(lead), pcm.astype(np.float64), np.zeros(tail)])
    if noise is not None:
        hiss = np.resize(noise, len(padded)).astype(np.float64)
        padded += (
            hiss * np.sqrt(power(pcm.astype(np.float64)) / power(hiss)) / 10 ** (below_db / 20)
        )
    return np.clip(np.round(padded), -32768, 32767).astype(np.int16)


def recordings() -> Iterator[Pcm]:
    files = [
        file
        for folder in ("commands", "speech", "vad")
        for file in sorted(shared_data(folder).rglob("*"))
        if file.suffix in {".wav", ".flac", ".mp3", ".ogg", ".opus"} and "long" not in file.parts
    ]
    for file in files[::EVERY]:
        yield decode_file(file)[: ms_to_samples(MAX_MS, ASR_RATE_HZ)]


@cache
def clips(room: str) -> list[Clip]:
    name, below_db = ROOMS[room]
    noise = decode_file(shared_data("noise", name)) if name else None
    vads = load("vad", "gated", {})
    found = []
    for pcm in recordings():
        span = speech_span(pcm, ASR_RATE_HZ)
        if span is None:
            continue
        is_single = samples_to_ms(len(pcm), ASR_RATE_HZ) <= MAX_SINGLE_MS
        end = ms_to_samples(LEAD_MS, ASR_RATE_HZ) + span[1] if is_single else None
        heard = with_noise(pcm, noise, below_db)
        found.append(Clip(heard, end, said(vads.open(), heard)))
    return found


def said(vad: Vad, pcm: Pcm) -> list[float]:
    size = vad.frame_samples
    return [vad.push(pcm[at : at + size]) for at in range(0, len(pcm) - size + 1, size)]


@cache
def measured(room: str, silence_ms: int, *, listens: bool) -> Measured:
    found = Measured()
    for clip in clips(room):
        hearing = SpeechDetector(Replay(clip.probabilities))
        hearing.configure(TurnDetection(silence_ms=silence_ms))
        if not listens:
            hearing._speech_offset = Deaf()
        frame = AudioFrame(clip.pcm, ASR_RATE_HZ, 0)
        ended = [
            hearing.samples
            for heard in hearing.push(frame)
            if heard.edge and heard.edge.kind is EdgeKind.ENDED
        ]
        found.ends += len(ended)
        if ended and clip.end is not None:
            found.lags_ms.append(samples_to_ms(ended[-1] - clip.end, ASR_RATE_HZ) - silence_ms)
    return found


@pytest.mark.parametrize("silence_ms", [500, 300, 200])
@pytest.mark.parametrize("room", ROOMS)
def test_the_lag_of_the_vad_is_not_added_to_the_wait(room: str, silence_ms: int) -> None:
    before = measured(room, silence_ms, listens=False)
    after = measured(room, silence_ms, listens=True)
    for name, one in (("before", before), ("after", after)):
        lags = ", ".join(f"p{p} {one.lag_ms(p):.0f}" for p in (25, 50, 75, 95))
        print(f"{room}, {silence_ms} ms, {name}: lag {lags} ms; {one.ends} utterances")
    assert before.lag_ms(50) >= 50
    assert -10 <= after.lag_ms(50) <= 30  # a frame is 20
    assert after.lag_ms(75) <= before.lag_ms(75) - 20
    assert after.lag_ms(95) < before.lag_ms(95)


@pytest.mark.parametrize("silence_ms", [500, 300, 200])
@pytest.mark.parametrize("room", [room for room in ROOMS if room != "loud noise"])
def test_no_more_cuts_happen_than_the_lag_explains(room: str, silence_ms: int) -> None:
    """In noise the lag of the VAD was longer, and so was every wait; in a quiet room a sound at the
    end of the wait delays it, and the number of cuts stays."""
    before = measured(room, silence_ms, listens=False)
    explained = measured(room, silence_ms - VAD_LAG_MS, listens=False)
    after = measured(room, silence_ms, listens=True)
    assert after.ends <= explained.ends
    if room == "digital silence":
        assert after.ends <= before.ends * 1.02
