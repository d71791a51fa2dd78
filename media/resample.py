"""Converts the sample rate of a stream. The output does not depend on how the input is divided.

FFmpeg's swresample does the work: it holds back 1 ms, costs 12 us per 20 ms and keeps the exact
length. soxr was tried: its stream interface works in blocks and holds back 37-84 ms.
"""

from contextlib import suppress

import numpy as np
from av import AudioFrame as AvFrame
from av.error import BlockingIOError as AvBlockingIOError
from av.error import EOFError as AvEOFError
from av.filter import Graph

from core.audio import Pcm, samples_to_ms

REACH_SAMPLES = 16
"Length of the filter to each side, in samples of the lower of both rates."

_EMPTY = np.zeros(0, np.int16)


class Resampler:
    """Converts mono s16 from `from_hz` to `to_hz`.

    With `live`, every push returns exactly its share of the output, late by `live_delay_ms`, so
    that 20 ms in give 20 ms out at once. Without `live`, positions in time do not shift, and
    `flush` returns what the filter still holds.

    Example:
        resampler = Resampler(48_000, 16_000, live=True)
        pcm16k = resampler.push(pcm48k)     # 960 samples in, 320 samples out
    """

    def __init__(self, from_hz: int, to_hz: int, *, live: bool = False) -> None:
        self.from_hz, self.to_hz, self.live = from_hz, to_hz, live
        self._ready = _EMPTY
        self._samples_in = self._samples_out = 0
        self._start()

    def push(self, pcm: Pcm) -> Pcm:
        """Converts the next samples. `pcm`: int16, shape (samples,). Returns what is ready by now,
        at `to_hz`."""
        if self.from_hz == self.to_hz or not len(pcm):
            return pcm
        held = np.concatenate([self._ready, self._convert(pcm)])
        if not self.live:
            return held
        self._samples_in += len(pcm)
        due = self._samples_in * self.to_hz // self.from_hz - self._samples_out
        self._ready = held[due:]
        self._samples_out += len(held[:due])
        return held[:due]

    def flush(self) -> Pcm:
        """Returns the rest. Afterwards a new stream begins."""
        if self.from_hz == self.to_hz:
            return _EMPTY
        self._graph.push(None)
        parts = [self._ready]
        with suppress(AvEOFError):
            while True:
                parts.append(self._pull())
        self._start()
        return np.concatenate(parts)

    def _start(self) -> None:
        self._ready = _EMPTY
        self._samples_in = self._samples_out = 0
        if self.from_hz == self.to_hz:
            return
        self._graph = _graph(self.from_hz, self.to_hz)
        if self.live:
            lower_hz = min(self.from_hz, self.to_hz)
            reach = -(-REACH_SAMPLES * self.from_hz // lower_hz)
            warm_up = 2 * reach  # swresample returns nothing before this much went in, then all
            made = self._convert(np.zeros(warm_up + reach, np.int16))
            self._ready = made[warm_up * self.to_hz // self.from_hz :]

    def _convert(self, pcm: Pcm) -> Pcm:
        frame = AvFrame.from_ndarray(pcm.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = self.from_hz
        self._graph.push(frame)
        try:
            return self._pull()
        except AvBlockingIOError:  # the filter needs more samples
            return _EMPTY

    def _pull(self) -> Pcm:
        """Returns one output frame as a view of FFmpeg's memory, which the caller must copy. Each
        frame that goes in gives at most one."""
        part = self._graph.pull()
        assert isinstance(part, AvFrame)
        return np.frombuffer(memoryview(part.planes[0]), np.int16, part.samples)


def live_delay_ms(from_hz: int, to_hz: int) -> float:
    """Returns the constant delay of a live resampler in ms: the look-ahead of its filter."""
    return 0.0 if from_hz == to_hz else samples_to_ms(REACH_SAMPLES, min(from_hz, to_hz))


def _graph(from_hz: int, to_hz: int) -> Graph:
    """Builds the filter graph that av.AudioResampler would build, but runs it in the caller's
    thread.

    av.AudioResampler has no setting for threads: each stream would start one per core, for nothing.
    """
    graph = Graph()
    graph.threads = 1
    source = graph.add(
        "abuffer",
        sample_rate=str(from_hz),
        sample_fmt="s16",
        channel_layout="mono",
        time_base=f"1/{from_hz}",
    )
    shape = graph.add("aformat", sample_rates=str(to_hz), sample_fmts="s16", channel_layouts="mono")
    sink = graph.add("abuffersink")
    source.link_to(shape)
    shape.link_to(sink)
    graph.configure()
    return graph
