"""PCM as bytes, and its level."""

import numpy as np

from core.audio import PTIME_MS, AudioFrame, Pcm
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


# Cuts a stream of PCM into frames of exactly one ptime.


class Framer:
    """Any chunk sizes in, frames of exactly `ptime_ms` out, with a running `start`.

    Raises ValueError when a frame would not be a whole number of samples.
    """

    def __init__(self, rate_hz: int, ptime_ms: int = PTIME_MS, start: int = 0) -> None:
        self.rate_hz = rate_hz
        self.frame_samples, cut = divmod(rate_hz * ptime_ms, 1000)
        if cut:
            raise ValueError(f"{ptime_ms} ms at {rate_hz} Hz is not a whole number of samples")
        self._start = start
        self._held: list[Pcm] = []
        self._held_samples = 0

    def push(self, pcm: Pcm) -> list[AudioFrame]:
        """`pcm` may become a frame as it is: it belongs to us now."""
        if len(pcm) == self.frame_samples and not self._held_samples:
            return [self._frame(pcm)]
        self._held.append(pcm)
        self._held_samples += len(pcm)
        count = self._held_samples // self.frame_samples
        if not count:
            return []
        joined = np.concatenate(self._held)
        used = count * self.frame_samples
        self._held, self._held_samples = [joined[used:]], len(joined) - used
        return [self._frame(part) for part in joined[:used].reshape(count, -1)]

    def flush(self) -> AudioFrame | None:
        """The rest, padded with silence to a whole frame; None when nothing is left."""
        if not self._held_samples:
            return None
        padding = np.zeros(self.frame_samples - self._held_samples, np.int16)
        (frame,) = self.push(padding)
        return frame

    def _frame(self, pcm: Pcm) -> AudioFrame:
        start = self._start
        self._start += len(pcm)
        return AudioFrame(pcm, self.rate_hz, start)
