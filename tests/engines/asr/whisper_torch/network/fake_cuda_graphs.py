"""CUDA graphs without a GPU: a capture is a list of kernels with the tensors they were given, and a
replay runs these again, on the same tensors, without the code that launched them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only


@dataclass(frozen=True, slots=True)
class _Slot:
    """A result of a kernel, which each replay computes again."""

    number: int


@dataclass(slots=True)
class _Kernel:
    run: Any
    args: Any
    kwargs: Any
    made: list[int]
    "The slots of its results."


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Runs and records kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[_Kernel] = []
        self.made: list[torch.Tensor] = []
        self._slots: dict[int, _Slot] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given, named = tree_map_only(torch.Tensor, self._noted, (args, kwargs))
        found = func(*args, **kwargs)
        made = [self._slot(one) for one in _results(found)]
        self.kernels.append(_Kernel(func, given, named, made))
        return found

    def _noted(self, tensor: torch.Tensor) -> Any:
        return self._slots.get(id(tensor), tensor)

    def _slot(self, tensor: torch.Tensor) -> int:
        slot = _Slot(len(self.made))
        self.made.append(tensor)  # kept while recording, so that no other tensor gets its id
        if not any(tensor is one for one in self.made[:-1]):
            self._slots[id(tensor)] = slot
        return slot.number


@dataclass(slots=True)
class Graph:
    """Replaces `torch.cuda.CUDAGraph`."""

    kernels: Sequence[_Kernel] = ()
    outputs: dict[int, Any] = field(default_factory=dict)
    "Slots whose tensors are still in use: a replay copies the results into them."

    def replay(self) -> None:
        made: dict[int, torch.Tensor] = {}
        for kernel in self.kernels:
            given = tree_map_only(_Slot, lambda slot: made[slot.number], kernel.args)
            named = tree_map_only(_Slot, lambda slot: made[slot.number], kernel.kwargs)
            made.update(zip(kernel.made, _results(kernel.run(*given, **named)), strict=True))
        for number, kept in self.outputs.items():
            if (tensor := kept()) is not None:
                tensor.copy_(made[number])


def _results(found: Any) -> list[torch.Tensor]:
    several = found if isinstance(found, tuple | list) else [found]
    return [one for one in several if isinstance(one, torch.Tensor)]


@dataclass(eq=False, slots=True)
class Stream:
    """Replaces `torch.cuda.Stream`; `Cuda.told` records its waits."""

    cuda: "Cuda"
    name: str

    def wait_stream(self, other: "Stream") -> None:
        self.cuda.told.append(f"{self.name} waits for {other.name}")


class Cuda:
    """Replaces the parts of `torch.cuda` that `graphs.py` uses; `told` records the calls."""

    def __init__(self, fails_at: int | None) -> None:
        self.told: list[str] = []
        self.current = Stream(self, "usual")
        self._fails_at, self._captures, self._streams = fails_at, 0, 0

    def new_stream(self) -> Stream:
        self._streams += 1
        return Stream(self, f"side {self._streams}")

    def set_stream(self, stream: Stream) -> None:
        self.current = stream

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        self.told.append(f"on {stream.name}")
        yield
        self.current = before

    @contextmanager
    def graph(
        self, graph: Graph, pool: Any, stream: Stream, *, capture_error_mode: str
    ) -> Iterator[None]:
        """Captures as torch does: if it fails, the capturing stream stays the current one."""
        assert (pool, capture_error_mode) == ("pool", "thread_local")
        self._captures += 1
        before, self.current = self.current, stream
        self.told.append(f"capture on {stream.name}")
        with _Recorder() as recorder:
            yield
        if self._captures == self._fails_at:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate much\nand more")
        graph.kernels, made = recorder.kernels, recorder.made
        graph.outputs = {number: ref(tensor) for number, tensor in enumerate(made)}
        self.current = before


def pretend(monkeypatch: pytest.MonkeyPatch, fails_at: int | None = None) -> Cuda:
    """Patches `torch.cuda`. `fails_at`: the number of the capture that runs out of memory."""
    cuda = Cuda(fails_at)
    for name, stands_in in (
        ("Stream", cuda.new_stream),
        ("CUDAGraph", Graph),
        ("current_stream", lambda: cuda.current),
        ("set_stream", cuda.set_stream),
        ("stream", cuda.stream),
        ("graph", cuda.graph),
        ("graph_pool_handle", lambda: "pool"),
        ("synchronize", lambda: cuda.told.append("synchronize")),
    ):
        monkeypatch.setattr(torch.cuda, name, stands_in)
    return cuda
