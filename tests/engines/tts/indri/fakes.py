"""A backend and a codec without a model: each speech is known before it is written."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from core.errors import OverloadedError
from engines.base.codec import Samples
from engines.tts.indri.frames import pack
from engines.tts.indri.token_layout import CODEBOOKS, TokenLayout
from engines.tts.token_model.backend import NewId, TokenRequest

FRAME_SAMPLES = 1920


class ScriptedBackend:
    """A `TokenBackend`. A speech has as many frames as its prompt has ids; all codes of a frame
    are the number of the frame."""

    def __init__(self, layout: TokenLayout, slots: int = 3, context: int = 512) -> None:
        self.slots, self.context = slots, context
        self._layout = layout
        self.running: dict[int, tuple[list[int], int]] = {}
        "Number -> ids that are still to be written, and the limit."
        self.steps = 0
        self.most_running = 0
        self.fails_at_step = 0
        self._next = 0

    def start(self, request: TokenRequest) -> int:
        if len(self.running) == self.slots:
            raise OverloadedError("full", retry_after_s=1)
        frames = np.tile(np.arange(len(request.prompt)), (CODEBOOKS, 1))
        ids = [*pack(frames, self._layout), self._layout.stop]
        self._next += 1
        self.running[self._next] = (ids, request.max_ids)
        self.most_running = max(self.most_running, len(self.running))
        return self._next

    def step(self) -> Mapping[int, NewId]:
        self.steps += 1
        if self.steps == self.fails_at_step:
            raise RuntimeError("out of memory")
        found = {}
        for number, (ids, limit) in list(self.running.items()):
            is_last = len(ids) == 1 or limit == 1
            found[number] = NewId(ids[0], is_last)
            self.running[number] = (ids[1:], limit - 1)
            if is_last:
                self.cancel(number)
        return found

    def cancel(self, number: int) -> None:
        self.running.pop(number, None)


class NumberStreams:
    """`DecodeStreams` whose samples are the codes of the first codebook, divided by 1000."""

    capacity, max_frames = 3, 8

    def __init__(self) -> None:
        self.open_streams: set[int] = set()
        self._next = 0

    def open(self) -> int:
        self._next += 1
        self.open_streams.add(self._next)
        return self._next

    def step(self, frames: Mapping[int, npt.NDArray[np.integer]]) -> dict[int, Samples]:
        assert set(frames) <= self.open_streams
        assert len({codes.shape for codes in frames.values()}) == 1
        return {
            stream: np.repeat(codes[0] / 1000, FRAME_SAMPLES).astype(np.float32)
            for stream, codes in frames.items()
        }

    def close(self, stream: int) -> None:
        self.open_streams.discard(stream)
