"""Rows of a decoder's buffers, each lent to one stream while it is open."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from core.errors import OverloadedError
from engines.base.codec import CodecInfo, Samples
from engines.codec.torch_layers.causal_layers import Rows

RETRY_AFTER_S = 1
"Time after which a refused caller may try again, in seconds: an answer is a few seconds long."


class StepDecoder(Protocol):
    """A decoder's network with the state of its streams."""

    buffers: list[Any]
    "All state: the first dimension is the stream. A row of zeros is a new stream."

    def step(self, codes: Any, rows: Rows) -> Any:
        """Returns the sound of the next frames of these rows, shape (rows, samples)."""
        ...


class TorchDecodeStreams:
    """An `engines.base.codec.DecodeStreams`."""

    def __init__(
        self, decoder: StepDecoder, info: CodecInfo, capacity: int, max_frames: int
    ) -> None:
        """`decoder`: has a row for each of the `capacity` streams."""
        self.capacity, self.max_frames = capacity, max_frames
        self._decoder, self._info = decoder, info
        self.buffers = decoder.buffers
        "All memory of the streams."
        self._device = decoder.buffers[0].device
        self._rows: dict[int, int] = {}
        """Open stream -> its row. The rows in use are the first ones, so that a step of all streams
        reads its state in place, without gathering it."""
        self._next_id = 0

    def open(self) -> int:
        """Returns the id of a new stream. Raises OverloadedError when all `capacity` are open."""
        if len(self._rows) == self.capacity:
            problem = f"all {self.capacity} streams of codec.{self._info.name} are open"
            raise OverloadedError(problem, retry_after_s=RETRY_AFTER_S)
        stream, self._next_id = self._next_id, self._next_id + 1
        row = self._rows[stream] = len(self._rows)
        for buffer in self._decoder.buffers:
            buffer[row].zero_()
        return stream

    def step(self, frames: Mapping[int, npt.NDArray[np.integer]]) -> dict[int, Samples]:
        """Decodes the next frames of some streams. See `DecodeStreams.step`."""
        if not frames:
            return {}
        self._check(frames)
        streams = sorted(frames, key=self._rows.__getitem__)
        codes = np.stack([frames[stream] for stream in streams]).astype(np.int64)
        rows = [self._rows[stream] for stream in streams]
        is_side_by_side = rows[-1] - rows[0] + 1 == len(rows)
        with torch.inference_mode():
            where: Rows = (
                slice(rows[0], rows[-1] + 1)
                if is_side_by_side
                else torch.tensor(rows, device=self._device)
            )
            sound = self._decoder.step(torch.from_numpy(codes).to(self._device), where)
            samples = sound.float().cpu().numpy()
        return dict(zip(streams, samples, strict=True))

    def close(self, stream: int) -> None:
        """Ends a stream and drops its state. Does nothing for a stream that is not open."""
        row = self._rows.pop(stream, None)
        if row is None:
            return
        last = len(self._rows)
        if row != last:
            moved = next(stream for stream, place in self._rows.items() if place == last)
            for buffer in self._decoder.buffers:
                buffer[row].copy_(buffer[last])
            self._rows[moved] = row
        for buffer in self._decoder.buffers:
            buffer[last].zero_()

    def _check(self, frames: Mapping[int, npt.NDArray[np.integer]]) -> None:
        if unknown := [stream for stream in frames if stream not in self._rows]:
            raise ValueError(f"stream {unknown[0]} is not open")
        shapes = {codes.shape for codes in frames.values()}
        if len(shapes) > 1:
            raise ValueError(f"all codes of one step have one shape, not {sorted(shapes)}")
        (shape,) = shapes
        if len(shape) != 2 or not 1 <= shape[1] <= self.max_frames:
            raise ValueError(
                f"codes have the shape {shape}; allowed: (codebooks, 1 to {self.max_frames})"
            )
        if shape[0] not in self._info.codebooks:
            raise ValueError(f"{shape[0]} codebooks; allowed: {self._info.codebooks}")
        size = self._info.codebook_size
        if any(codes.min() < 0 or codes.max() >= size for codes in frames.values()):
            raise ValueError(f"a code is outside 0 to {size - 1}")
