"""G.711, as telephones speak it: one byte per sample at 8 kHz, mu-law (PCMU) and A-law (PCMA).

Both directions are table lookups: 256 entries to decode, 65 536 to encode. ITU-T G.711, tables 1
and 2, in the 16-bit scale that everybody uses (14 and 13 bits, shifted up).
"""

from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from core.audio import Pcm

RATE_HZ = 8_000

G711Law = Literal["mu", "a"]

_BIAS = 0x84
"Added to a mu-law magnitude, so that every segment begins at a power of two."
_LOUDEST = 32_635
"Largest magnitude that the bias leaves within 16 bits."


def decode(data: bytes, law: G711Law) -> Pcm:
    """Any bytes are sound."""
    return _linear(law)[np.frombuffer(data, np.uint8)]


def encode(pcm: Pcm, law: G711Law) -> bytes:
    return _coded(law)[pcm.view(np.uint16)].tobytes()


@cache
def _linear(law: G711Law) -> Pcm:
    """Code -> sample."""
    code = np.arange(256) ^ (0xFF if law == "mu" else 0x55)
    segment, step = (code & 0x70) >> 4, code & 0x0F
    if law == "mu":
        magnitude = (((step << 3) + _BIAS) << segment) - _BIAS
        is_negative = (code & 0x80) != 0
    else:
        first = (step << 4) + 8
        magnitude = np.where(segment == 0, first, (first + 0x100) << np.maximum(segment - 1, 0))
        is_negative = (code & 0x80) == 0
    return np.where(is_negative, -magnitude, magnitude).astype(np.int16)


@cache
def _coded(law: G711Law) -> npt.NDArray[np.uint8]:
    """Sample, its bits read as an unsigned number -> code."""
    sample = np.arange(0x10000, dtype=np.uint16).view(np.int16).astype(np.int32)
    if law == "mu":
        biased = np.minimum(np.abs(sample), _LOUDEST) + _BIAS
        segment = _top_bit(biased) - 7
        code = np.where(sample < 0, 0x80, 0) | segment << 4 | (biased >> (segment + 3)) & 0x0F
        return np.asarray(code ^ 0xFF, np.uint8)
    magnitude = np.where(sample < 0, ~sample, sample)  # -1 is the quietest below zero
    segment = np.maximum(_top_bit(np.maximum(magnitude, 1)) - 7, 0)
    code = np.where(sample < 0, 0, 0x80) | segment << 4
    code |= (magnitude >> np.maximum(segment + 3, 4)) & 0x0F
    return np.asarray(code ^ 0x55, np.uint8)


def _top_bit(value: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return np.floor(np.log2(value)).astype(np.int32)
