"""Makes sounds that overlap an answer: spoken backchannels and interruptions, and filtered noise.

The noises are the same in every run. The speech is, if the voice always speaks in the same way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples

OverlapKind = Literal["backchannel", "interruption", "noise"]
"""Kind of a sound that overlaps an answer. backchannel: words of a listener who does not want to
interrupt."""

KINDS: tuple[OverlapKind, ...] = ("backchannel", "interruption", "noise")

VOICES = ("en-us", "en-us+f3", "en-gb+m3")

BACKCHANNELS = ("uh-huh", "mm-hmm", "mhm", "yeah", "okay", "right", "oh really", "I see", "hmm")

INTERRUPTIONS = (
    "stop",
    "wait",
    "stop it",
    "cancel that",
    "turn off the kitchen light",
    "wait, turn off the kitchen light",
    "what time is it",
    "no, set a timer for ten minutes",
    "how is the weather in Paris",
)

NOISE_DBFS = -22.0
"Level of the noises, about that of the voice."

Wave = npt.NDArray[np.float64]
"Sound as float64, full scale 1."

SpeechSource = Callable[[str, str], Pcm]
"Function from text and voice to audio at 16 kHz."


@dataclass(frozen=True, slots=True)
class OverlapClip:
    """A sound that overlaps an answer."""

    kind: OverlapKind
    name: str
    pcm: Pcm
    "Samples at 16 kHz."


def overlaps(say: SpeechSource, voices: Sequence[str] = VOICES) -> Iterator[OverlapClip]:
    """Yields all clips. say: synthesises speech. voices: names that `say` takes."""
    spoken: dict[OverlapKind, Sequence[str]] = {
        "backchannel": BACKCHANNELS,
        "interruption": INTERRUPTIONS,
    }
    for kind, texts in spoken.items():
        for text in texts:
            for voice in voices:
                yield OverlapClip(kind, f"{text} ({voice})", say(text, voice))
    for name, wave in _noises():
        yield OverlapClip("noise", name, _levelled(wave))


def _noises() -> Iterator[tuple[str, Wave]]:
    rng = np.random.default_rng(7)
    yield "cough", _cough(rng, 1)
    yield "two coughs", _cough(rng, 2)
    yield "throat cleared", _throat(rng)
    yield "door slam", _slam(rng)
    yield "cutlery", _cutlery(rng)
    yield "knocks", np.concatenate([_band(rng, 150, 100, 900) * _decay(150, 25) for _ in range(3)])
    yield "hiss", _band(rng, 2000, 300, 7000)
    yield "hum of a motor", _motor(rng)


def _cough(rng: np.random.Generator, times: int) -> Wave:
    """Makes a burst of wide noise, then breath through the resonances of a mouth."""
    parts: list[Wave] = []
    for _ in range(times):
        burst = _band(rng, 60, 300, 6000) * 2 * _decay(60, 40)
        breath = (_band(rng, 240, 500, 1100) + _band(rng, 240, 1400, 2600)) * _decay(240, 90)
        parts += [burst, breath, np.zeros(ms_to_samples(150, ASR_RATE_HZ))]
    return np.concatenate(parts)


def _throat(rng: np.random.Generator) -> Wave:
    """Makes noise in the resonances of a mouth, modulated at some 30 Hz."""
    at_s = np.arange(ms_to_samples(600, ASR_RATE_HZ)) / ASR_RATE_HZ
    shaken = 0.5 + 0.5 * np.sin(2 * np.pi * 32 * at_s)
    mouth = _band(rng, 600, 300, 900) + 0.5 * _band(rng, 600, 1100, 2000)
    wave: Wave = mouth * shaken * np.hanning(len(at_s))
    return wave


def _slam(rng: np.random.Generator) -> Wave:
    wave: Wave = _band(rng, 500, 40, 400) * _decay(500, 80)
    wave[: ms_to_samples(30, ASR_RATE_HZ)] += _band(rng, 30, 500, 6000)
    return wave


def _cutlery(rng: np.random.Generator) -> Wave:
    at_s = np.arange(ms_to_samples(700, ASR_RATE_HZ)) / ASR_RATE_HZ
    wave = np.zeros(len(at_s))
    for start_s in (0.0, 0.18, 0.3, 0.52):
        since_s = np.maximum(at_s - start_s, 0)
        for frequency_hz in rng.uniform(2500, 6500, 4):
            ring = np.sin(2 * np.pi * frequency_hz * since_s) * np.exp(-since_s / 0.04)
            wave += np.where(at_s >= start_s, ring, 0)
    return wave


def _motor(rng: np.random.Generator) -> Wave:
    at_s = np.arange(ms_to_samples(2000, ASR_RATE_HZ)) / ASR_RATE_HZ
    tones = [np.sin(2 * np.pi * 120 * k * at_s) / k for k in range(1, 12)]
    wave: Wave = np.sum(tones, axis=0) + 0.3 * _band(rng, 2000, 200, 4000)
    return wave


def _band(rng: np.random.Generator, length_ms: float, low_hz: float, high_hz: float) -> Wave:
    """Makes noise between two frequencies, with a mean power of 1."""
    count = ms_to_samples(length_ms, ASR_RATE_HZ)
    spectrum = np.fft.rfft(rng.standard_normal(count))
    frequencies = np.fft.rfftfreq(count, 1 / ASR_RATE_HZ)
    spectrum[(frequencies < low_hz) | (frequencies > high_hz)] = 0
    wave = np.fft.irfft(spectrum, count)
    levelled: Wave = wave / np.sqrt(np.mean(wave**2))
    return levelled


def _decay(length_ms: float, to_a_third_ms: float) -> Wave:
    samples = np.arange(ms_to_samples(length_ms, ASR_RATE_HZ))
    decay: Wave = np.exp(-samples / ms_to_samples(to_a_third_ms, ASR_RATE_HZ))
    return decay


def _levelled(wave: Wave) -> Pcm:
    rms = 32768 * 10 ** (NOISE_DBFS / 20)
    scaled = wave * rms / np.sqrt(np.mean(wave**2))
    pcm: Pcm = np.clip(np.round(scaled), -32768, 32767).astype(np.int16)
    return pcm
