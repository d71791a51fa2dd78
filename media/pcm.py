"""Converts PCM to and from bytes, measures its level, and cuts it into frames."""

import numpy as np

from core.audio import PTIME_MS, AudioFrame, Pcm
from core.errors import RequestError

SILENCE_DBFS = -100.0
"""Level in dB that is reported for digital silence, whose level is minus infinity. The noise of s16
starts at -90 dB."""

_FULL_SCALE = 32768.0


def from_bytes(data: bytes) -> Pcm:
    """Converts little-endian s16 mono bytes to samples. Raises RequestError when the last sample is
    incomplete."""
    if len(data) % 2:
        raise RequestError(
            f"pcm16 audio of {len(data)} bytes is not a whole number of 2-byte samples",
            code="invalid_audio",
        )
    return np.frombuffer(data, "<i2").astype(np.int16, copy=False)


def to_bytes(pcm: Pcm) -> bytes:
    """Converts samples to little-endian s16 mono bytes."""
    return pcm.astype("<i2", copy=False).tobytes()


def rms(pcm: Pcm) -> float:
    """Returns the root mean square as a share of full scale, 0 to 1; 0 for no samples."""
    if not len(pcm):
        return 0.0
    samples = pcm.astype(np.float32)
    return float(np.sqrt(np.dot(samples, samples) / len(samples)) / _FULL_SCALE)


def dbfs(pcm: Pcm) -> float:
    """Returns the level in dB relative to full scale: SILENCE_DBFS to 0."""
    level = rms(pcm)
    return max(SILENCE_DBFS, 20 * float(np.log10(level))) if level else SILENCE_DBFS


class Framer:
    """Cuts a stream of PCM into frames of exactly `ptime_ms`.

    Chunks of any size go in. Frames come out; their `start` counts the samples of the stream.

    Example:
        framer = Framer(16_000)             # frames of 20 ms: 320 samples
        frames = framer.push(pcm)           # as many as are complete
        last = framer.flush()               # the rest, padded with silence
    """

    def __init__(self, rate_hz: int, ptime_ms: int = PTIME_MS, start: int = 0) -> None:
        """Creates a framer. `start`: position of the first sample. Raises ValueError when a frame
        would not be a whole number of samples."""
        self.rate_hz = rate_hz
        self.frame_samples, remainder = divmod(rate_hz * ptime_ms, 1000)
        if remainder:
            raise ValueError(f"{ptime_ms} ms at {rate_hz} Hz is not a whole number of samples")
        self._start = start
        self._pending: list[Pcm] = []
        self._held_samples = 0

    def push(self, pcm: Pcm) -> list[AudioFrame]:
        """Returns the frames that `pcm` completes. `pcm`: int16, shape (samples,). The framer owns
        it from now on, because a frame may share its memory."""
        if len(pcm) == self.frame_samples and not self._held_samples:
            return [self._frame(pcm)]
        self._pending.append(pcm)
        self._held_samples += len(pcm)
        count = self._held_samples // self.frame_samples
        if not count:
            return []
        joined = np.concatenate(self._pending)
        used = count * self.frame_samples
        self._pending, self._held_samples = [joined[used:]], len(joined) - used
        return [self._frame(part) for part in joined[:used].reshape(count, -1)]

    def flush(self) -> AudioFrame | None:
        """Returns the rest, padded with silence to a whole frame; None when nothing is left."""
        if not self._held_samples:
            return None
        padding = np.zeros(self.frame_samples - self._held_samples, np.int16)
        (frame,) = self.push(padding)
        return frame

    def _frame(self, pcm: Pcm) -> AudioFrame:
        start = self._start
        self._start += len(pcm)
        return AudioFrame(pcm, self.rate_hz, start)
