"""G.711 codec, as used in telephony: one byte per sample at 8 kHz, mu-law (PCMU) or A-law (PCMA).

Both directions are table lookups: 256 entries to decode, 65 536 to encode. ITU-T G.711, tables 1
and 2, in the usual 16-bit scale (14 and 13 bits, shifted up).
"""

from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from core.audio import Pcm

RATE_HZ = 8_000
"Sample rate of G.711."

G711Law = Literal["mu", "a"]
"The companding law: mu (PCMU) or a (PCMA)."

_BIAS = 0x84
"Value that is added to a mu-law magnitude, so that every segment begins at a power of two."
_LOUDEST = 32_635
"Largest magnitude that stays within 16 bits after the bias is added."


def decode(data: bytes, law: G711Law) -> Pcm:
    """Decodes bytes to as many samples, int16 at 8 kHz. Every byte is a valid sample."""
    return _linear(law)[np.frombuffer(data, np.uint8)]


def encode(pcm: Pcm, law: G711Law) -> bytes:
    """Encodes samples, int16 at 8 kHz, to as many bytes."""
    return _coded(law)[pcm.view(np.uint16)].tobytes()


@cache
def _linear(law: G711Law) -> Pcm:
    """Returns the sample for each code, as an array of 256."""
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
    """Returns the code for each sample, as an array of 65 536 indexed by the sample's bits as an
    unsigned number."""
    sample = np.arange(0x10000, dtype=np.uint16).view(np.int16).astype(np.int32)
    if law == "mu":
        biased = np.minimum(np.abs(sample), _LOUDEST) + _BIAS
        segment = _top_bit(biased) - 7
        code = np.where(sample < 0, 0x80, 0) | segment << 4 | (biased >> (segment + 3)) & 0x0F
        return np.asarray(code ^ 0xFF, np.uint8)
    magnitude = np.where(sample < 0, ~sample, sample)  # ~: the quietest negative sample, -1, is 0
    segment = np.maximum(_top_bit(np.maximum(magnitude, 1)) - 7, 0)
    code = np.where(sample < 0, 0, 0x80) | segment << 4
    code |= (magnitude >> np.maximum(segment + 3, 4)) & 0x0F
    return np.asarray(code ^ 0x55, np.uint8)


def _top_bit(value: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Returns the position of the highest bit that is set."""
    return np.floor(np.log2(value)).astype(np.int32)
