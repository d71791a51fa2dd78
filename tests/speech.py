"""Spoken test clips, made on the spot by our own eSpeak engine."""

from functools import cache

import numpy as np
import soxr

from core.audio import ASR_RATE_HZ, Pcm, silence
from engines.tts.espeak_library import NORMAL_WORDS_PER_MINUTE, espeak_library


@cache
def say(
    text: str,
    voice: str = "en-us",
    *,
    speed: float = 1,
    rate_hz: int = ASR_RATE_HZ,
    lead_ms: float = 0,
    tail_ms: float = 0,
) -> Pcm:
    """`text` as read-only mono PCM, between `lead_ms` and `tail_ms` of digital silence.

    Other timbres: `voice="en-us+f3"`; other accents: `"en-gb"`; other languages: `"de"`.
    """
    parts: list[Pcm] = []

    def sink(pcm: Pcm) -> bool:
        parts.append(pcm)
        return True

    library = espeak_library()
    library.synthesise(text, voice, round(NORMAL_WORDS_PER_MINUTE * speed), sink)
    speech = np.concatenate([np.zeros(0, np.int16), *parts])
    if rate_hz != library.rate_hz:
        speech = soxr.resample(speech, library.rate_hz, rate_hz)
    clip = np.concatenate([silence(lead_ms, rate_hz), speech, silence(tail_ms, rate_hz)])
    clip.setflags(write=False)
    return clip
