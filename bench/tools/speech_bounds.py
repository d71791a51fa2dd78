"""Finds the start and the end of the speech in a recording, if they can be determined.

Energy is accurate to 10 ms, but takes a noise for speech. A voice activity detector separates
voices from noise, but is accurate only to about 200 ms. Where both agree, energy counts. Where
sound continues without a voice, the end of the speech cannot be determined.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from bench.client.latency_probe import loud_spans, speech_span
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from core.errors import EngineMissing
from engines.base import Vad, VadEngine
from engines.registry import load
from media.resample import Resampler

BEFORE_VOICE_MS = 200
AFTER_VOICE_MS = 100
"""Allowed difference: the detector may report a voice this much later than energy, and its end this
much earlier. In 164 of 183 recordings of many people the difference is smaller (most
others are noisy). The medians are 28 and -34 ms."""

VOICED = 0.5
"Least probability of a frame that counts as voice."

SHORTEST_MS = 250
"Least voiced time of speech. The detector takes the beginning of a tone for a shorter voice."

PAUSE_MS = 150
"Silence after which a sound belongs to the voice no more. A stop inside a word is shorter."

_CLOSING_MS = 200
"Silence added after a recording, so that the detector's last frames are complete."


@dataclass(frozen=True, slots=True)
class SpeechBounds:
    """Bounds of speech as sample indices. None: the bound cannot be determined."""

    begin: int | None
    end: int | None
    "One past the last sample of speech."


def find_speech_bounds(pcm: Pcm, rate_hz: int) -> SpeechBounds:
    """Returns the bounds of the speech, or those of the recording if it has no speech.

    It takes about 2 ms per second of audio.
    """
    span = speech_span(pcm, rate_hz)
    if span is None:
        return SpeechBounds(0, len(pcm))
    begin, end = span
    voice = _voice_span(pcm, rate_hz)
    if voice is None:  # a tone, or a voice that the detector does not recognise
        return SpeechBounds(begin, end)
    first, last = voice
    is_begin_clear = first - begin <= ms_to_samples(BEFORE_VOICE_MS, rate_hz)
    is_end_clear = end - last <= ms_to_samples(AFTER_VOICE_MS, rate_hz)
    return SpeechBounds(begin if is_begin_clear else None, end if is_end_clear else None)


def find_speech_end(pcm: Pcm, rate_hz: int) -> int | None:
    """Returns one past the last sample of speech; None for silence.

    Sounds that follow the voice after a pause of PAUSE_MS are noises of the room.
    """
    spans = loud_spans(pcm, rate_hz)
    if not spans:
        return None
    voice = _voice_span(pcm, rate_hz)
    if voice is None:
        return spans[-1][1]
    pause = ms_to_samples(PAUSE_MS, rate_hz)
    end = max((end for start, end in spans if start < voice[1]), default=voice[1])
    for start, next_end in spans:
        if end <= start < end + pause:
            end = next_end
    return end


def _voice_span(pcm: Pcm, rate_hz: int) -> tuple[int, int] | None:
    """Returns the detector's bounds; None without a detector, or if there is too little voice."""
    engine = _detector()
    if engine is None:
        return None
    vad: Vad = engine.open()
    resampler = Resampler(rate_hz, ASR_RATE_HZ)
    quiet = np.zeros(ms_to_samples(_CLOSING_MS, rate_hz), np.int16)
    samples = np.concatenate([resampler.push(np.concatenate([pcm, quiet])), resampler.flush()])
    size = vad.frame_samples
    voiced = [
        at
        for at in range(0, len(samples) - size + 1, size)
        if vad.push(samples[at : at + size]) >= VOICED
    ]
    if len(voiced) < ms_to_samples(SHORTEST_MS, ASR_RATE_HZ) / size:
        return None
    ends = (voiced[0], voiced[-1] + size)
    first, last = (at * rate_hz // ASR_RATE_HZ for at in ends)
    return first, last


@cache
def _detector() -> VadEngine | None:
    try:
        engine: VadEngine = load("vad", "silero", {})
    except EngineMissing:
        return None
    return engine
