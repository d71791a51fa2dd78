"""Sample rate conversion of a stream. The output does not depend on how the input is cut.

FFmpeg's swresample does it: it holds back 1 ms, costs 12 us per 20 ms and keeps the exact length.
soxr was tried: its stream interface works in blocks and holds back 37-84 ms.
"""

import numpy as np
from av import AudioFrame as AvFrame
from av import AudioResampler

from core.audio import Pcm

LIVE_DELAY_MS = 2
"Constant delay of a live resampler: it is primed with this much silence, twice the filter's reach."

_EMPTY = np.zeros(0, np.int16)


class Resampler:
    """Converts mono s16 from `from_hz` to `to_hz`.

    With `live`, every push returns exactly its share of the output, LIVE_DELAY_MS late, so that
    20 ms in are 20 ms out at once. Without, output is undelayed in time, and what the filter
    still holds comes from `flush`.
    """

    def __init__(self, from_hz: int, to_hz: int, *, live: bool = False) -> None:
        self.from_hz, self.to_hz, self.live = from_hz, to_hz, live
        self._held = _EMPTY
        self._in = self._out = 0
        self._start()

    def push(self, pcm: Pcm) -> Pcm:
        if self.from_hz == self.to_hz or not len(pcm):
            return pcm
        converted = self._convert(pcm)
        if not self.live:
            return converted
        self._in += len(pcm)
        due = self._in * self.to_hz // self.from_hz - self._out
        held = np.concatenate([self._held, converted])
        self._held = held[due:]
        self._out += len(held[:due])
        return held[:due]

    def flush(self) -> Pcm:
        """The rest; afterwards a new stream begins."""
        if self.from_hz == self.to_hz:
            return _EMPTY
        rest = [self._held, *(frame.to_ndarray()[0] for frame in self._resampler.resample(None))]
        self._start()
        return np.concatenate(rest)

    def _start(self) -> None:
        self._resampler = AudioResampler(format="s16", layout="mono", rate=self.to_hz)
        self._held = _EMPTY
        self._in = self._out = 0
        if self.live:
            self._held = self._convert(np.zeros(-(-self.from_hz * LIVE_DELAY_MS // 1000), np.int16))

    def _convert(self, pcm: Pcm) -> Pcm:
        frame = AvFrame.from_ndarray(pcm.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = self.from_hz
        parts = [part.to_ndarray()[0] for part in self._resampler.resample(frame)]
        return np.concatenate(parts) if parts else _EMPTY
