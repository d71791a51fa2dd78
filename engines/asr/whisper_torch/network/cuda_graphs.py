"""How a step and an encoding are launched: one by one, or as CUDA graphs captured at the start.

On a modern GPU a step of one row is computed faster than its hundred kernels are launched. A graph
launches them at once; it needs buffers that never move (`state`) and one capture per shape.
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import torch

from engines.asr.whisper_torch.batching.kv_cache import DecoderState, StepKind
from engines.asr.whisper_torch.batching.logit_rules import RowPositions, apply_logit_rules
from engines.asr.whisper_torch.batching.sampling import choose
from engines.asr.whisper_torch.network.decoder import step
from engines.asr.whisper_torch.network.encoder import encode
from engines.asr.whisper_torch.network.weights import ModelWeights

logger = logging.getLogger(__name__)

_REHEARSALS = 2
"Runs before a capture: libraries choose their kernels and take their memory in them."

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class StepShape:
    """Which rows a step computes, and how far it looks."""

    rows: int
    said: int
    "Tokens of the longest of them."
    heard: int
    "Encoder positions of the longest of them."
    kind: StepKind = StepKind.PLAIN
    is_full: bool = False
    "All listen to exactly `heard` positions."


@dataclass(frozen=True, slots=True)
class EncodeShape:
    windows: int
    frames: int


class KernelLauncher(Protocol):
    """One of the two ways; both compute the same."""

    @property
    def captured(self) -> Sequence["StepShape | EncodeShape"]:
        """What is replayed from a graph."""
        ...

    def step(self, shape: StepShape) -> None:
        """The next token of the first rows of the state. Does not wait for the device."""
        ...

    def encode(self, mel: torch.Tensor) -> torch.Tensor:
        """(windows, mels, frames) -> (windows, frames / 2, width), until the next call."""
        ...


class EagerLauncher:
    """Kernel by kernel: what every device can do, and what graphs are compared with."""

    def __init__(self, weights: ModelWeights, state: DecoderState) -> None:
        self._weights, self._state = weights, state
        self.captured: Sequence[StepShape | EncodeShape] = ()

    def step(self, shape: StepShape) -> None:
        """See `KernelLauncher`."""
        decoder = self._weights.decoder
        scores = step(
            decoder, self._state, shape.rows, shape.said, shape.heard, is_full=shape.is_full
        )
        now = RowPositions.of(self._state, shape.rows)
        may = apply_logit_rules(self._state, now, scores, shape.kind)
        choose(self._state, now, scores, may, said=shape.said, kind=shape.kind)

    def encode(self, mel: torch.Tensor) -> torch.Tensor:
        """See `KernelLauncher`."""
        return encode(self._weights.encoder, mel)


class _GraphPool:
    """Where the graphs of one model are captured: its own streams, its own memory.

    cuBLAS keeps memory for each stream. That of the stream that captures is taken in the first
    capture, from the graphs' pool, and lives as long as they: others free theirs (`torch.compile`
    does) without taking it from them. One for rehearsals is enough: each costs 32 MB.
    """

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.rehearsing, self.capturing = torch.cuda.Stream(), torch.cuda.Stream()

    def capture(self, call: Callable[[], None]) -> Any:
        """Rehearse on a side stream, as torch asks for, then record. `call` uses static buffers."""
        usual, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
        try:
            self.rehearsing.wait_stream(usual)
            with torch.cuda.stream(self.rehearsing):
                for _ in range(_REHEARSALS):
                    call()
            usual.wait_stream(self.rehearsing)
            # Another thread may use the device meanwhile: the graph is not spoilt by that.
            with torch.cuda.graph(
                graph, self.pool, self.capturing, capture_error_mode="thread_local"
            ):
                call()
        finally:
            torch.cuda.set_stream(usual)  # a capture that fails does not go back by itself
        return graph


@dataclass(slots=True)
class _GraphCache(Generic[K]):
    """Captured calls by shape."""

    place: _GraphPool
    captured: dict[K, Any] = field(default_factory=dict)

    def capture(self, key: K, call: Callable[[], None]) -> None:
        self.captured[key] = self.place.capture(call)

    def replay(self, key: K) -> bool:
        """False: there is no such graph."""
        graph = self.captured.get(key)
        if graph is None:
            return False
        graph.replay()
        return True


class CudaGraphLauncher:
    """Graphs for the shapes that were warmed up; the others go kernel by kernel."""

    def __init__(self, weights: ModelWeights, state: DecoderState) -> None:
        self._eager = EagerLauncher(weights, state)
        self._mels, self._dtype, self._device = weights.shape.mels, weights.dtype, weights.device
        place = _GraphPool()
        self._steps = _GraphCache[StepShape](place)
        self._encodes = _GraphCache[EncodeShape](place)
        self._windows: dict[EncodeShape, tuple[torch.Tensor, torch.Tensor]] = {}

    def warm_up(
        self,
        shapes: Sequence[StepShape | EncodeShape],
        budget_s: float,
        now: Callable[[], float],
    ) -> int:
        """Capture them in this order until the budget is used up, or one fails, for memory perhaps:
        that one and what follows go kernel by kernel. How many were captured. No row may be in use:
        what steps write to rows that are done does not count."""
        began = now()
        try:
            for shape in shapes:
                if now() - began > budget_s:
                    break
                if isinstance(shape, StepShape):
                    self._steps.capture(shape, partial(self._eager.step, shape))
                else:
                    self._capture_encoder(shape)
        except RuntimeError as error:  # torch's; what it says may be a page
            reason = str(error).partition("\n")[0]
            logger.warning("= asr.whisper_torch: no more CUDA graphs: %s", reason)
        torch.cuda.synchronize()  # what was rehearsed writes to the rows, on a stream of its own
        return len(self.captured)

    @property
    def captured(self) -> Sequence[StepShape | EncodeShape]:
        """See `KernelLauncher`."""
        return [*self._steps.captured, *self._encodes.captured]

    def step(self, shape: StepShape) -> None:
        """See `KernelLauncher`."""
        if not self._steps.replay(shape):
            self._eager.step(shape)

    def encode(self, mel: torch.Tensor) -> torch.Tensor:
        """See `KernelLauncher`."""
        shape = EncodeShape(mel.shape[0], mel.shape[2])
        if shape not in self._windows:
            return self._eager.encode(mel)
        window, encoded = self._windows[shape]
        window.copy_(mel)
        self._encodes.replay(shape)
        return encoded.clone()  # the next call overwrites it, and its reader comes later

    def _capture_encoder(self, shape: EncodeShape) -> None:
        size = (shape.windows, self._mels, shape.frames)
        window = torch.zeros(size, dtype=self._dtype, device=self._device)
        found: list[torch.Tensor] = []

        def call() -> None:
            found[:] = [self._eager.encode(window)]

        self._encodes.capture(shape, call)
        self._windows[shape] = (window, found[0])
