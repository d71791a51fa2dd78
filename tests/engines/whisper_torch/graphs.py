"""CUDA graphs without a GPU: a graph that is replayed does again what was captured."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from engines.asr.whisper_torch import graphs


@dataclass(frozen=True)
class Replayed:
    replay: Callable[[], None]


def pretend(monkeypatch: pytest.MonkeyPatch, fails_at: int | None = None) -> None:
    """`fails_at`: the capture that finds no memory."""
    count = 0

    def capture(self: Any, key: Any, call: Callable[[], None]) -> None:
        nonlocal count
        count += 1
        if count == fails_at:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much\nand more")
        call()
        self.captured[key] = Replayed(call)

    def capture_encoder(self: Any, shape: graphs.EncodeShape) -> None:
        """A real graph writes where it wrote when it was captured."""
        window = torch.zeros(shape.windows, self._mels, shape.frames, dtype=self._dtype)
        encoded = self._eager.encode(window)
        self._encodes.capture(shape, lambda: encoded.copy_(self._eager.encode(window)))
        self._windows[shape] = (window, encoded)

    monkeypatch.setattr(graphs._Graphs, "capture", capture)
    monkeypatch.setattr(graphs.Captured, "_capture_encoder", capture_encoder)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
