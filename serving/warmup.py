"""A first decode through the whole path: what is slow or broken the first time shows here."""

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import EngineError
from core.ids import new_id
from engines.base import AsrInfo, AsrItem, AsrOptions

PITCH_HZ = 140
SYLLABLES_HZ = 4
LOUDNESS = 6000


def warmup_audio() -> Pcm:
    """A second of hum with syllables: loud enough that no engine skips it as silence."""
    seconds = np.arange(ASR_RATE_HZ) / ASR_RATE_HZ
    hum = sum(np.sin(2 * np.pi * PITCH_HZ * n * seconds) / n for n in range(1, 12))
    loudness = LOUDNESS * np.sin(np.pi * SYLLABLES_HZ * seconds) ** 2
    pcm: Pcm = np.clip(hum * loudness, -32768, 32767).astype(np.int16)
    return pcm


def warmup_item(info: AsrInfo) -> AsrItem:
    """The hum as an utterance. Decoded once and in a short window: it is nobody's words, and
    somebody waits for the start."""
    options = AsrOptions(
        temperatures=(0.0,) if "temperatures" in info.supports else (),
        padding="bucket" if "padding" in info.supports else None,
    )
    return AsrItem(new_id("warm"), warmup_audio(), is_final=True, options=options)


def warmup_error(engine: str, error: EngineError) -> EngineError:
    """What a model says that loads and cannot decode."""
    return EngineError("asr", engine, f"loads, but its first decode fails: {error}")
