"""Loudness of the voices that share one speech. Pure."""

import numpy as np

from core.audio import Pcm
from engines.base import TtsInfo

MAX_GAIN = 2.0
"Most that samples are raised to match another voice. More would distort."


def matching_gain(voice: TtsInfo, reference: TtsInfo) -> float:
    """Returns the factor that makes an engine as loud as another one; 1 if one is not known."""
    if voice.loudness_lufs is None or reference.loudness_lufs is None:
        return 1.0
    return min(float(10 ** ((reference.loudness_lufs - voice.loudness_lufs) / 20)), MAX_GAIN)


def scaled(pcm: Pcm, gain: float) -> Pcm:
    """Returns the samples times `gain`, within their range."""
    if gain == 1:
        return pcm
    louder: Pcm = np.clip(np.rint(pcm * gain), -32_768, 32_767).astype(np.int16)
    return louder
