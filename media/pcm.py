"""PCM as bytes, and its level."""

import numpy as np

from core.audio import Pcm
from core.errors import RequestError

SILENCE_DBFS = -100.0
"Reported for digital silence, whose level is minus infinity; s16 noise starts at -90."

_FULL_SCALE = 32768.0


def from_bytes(data: bytes) -> Pcm:
    """Little-endian s16 mono. Raises RequestError when a sample is cut in half."""
    if len(data) % 2:
        raise RequestError(
            f"pcm16 audio of {len(data)} bytes is not a whole number of 2-byte samples",
            code="invalid_audio",
        )
    return np.frombuffer(data, "<i2").astype(np.int16, copy=False)


def to_bytes(pcm: Pcm) -> bytes:
    """Little-endian s16 mono."""
    return pcm.astype("<i2", copy=False).tobytes()


def rms(pcm: Pcm) -> float:
    """Root mean square as a share of full scale, 0 to 1; 0 for no samples."""
    if not len(pcm):
        return 0.0
    samples = pcm.astype(np.float32)
    return float(np.sqrt(np.dot(samples, samples) / len(samples)) / _FULL_SCALE)


def dbfs(pcm: Pcm) -> float:
    """Level in dB relative to full scale, never below SILENCE_DBFS."""
    level = rms(pcm)
    return max(SILENCE_DBFS, 20 * float(np.log10(level))) if level else SILENCE_DBFS
