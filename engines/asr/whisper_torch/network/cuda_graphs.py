"""Launches steps and encodings: kernel by kernel, or as CUDA graphs captured at the start.

On a modern GPU a step of one row is computed faster than its hundred kernels are launched. A graph
launches all of them at once. It needs buffers that never move (`DecoderState`), and one capture per
shape.
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import torch

from engines.asr.whisper_torch.batching.kv_cache import DecoderState, StepKind
from engines.asr.whisper_torch.batching.logit_rules import RowPositions, apply_logit_rules
from engines.asr.whisper_torch.batching.sampling import choose_tokens
from engines.asr.whisper_torch.network.decoder import step
from engines.asr.whisper_torch.network.encoder import encode
from engines.asr.whisper_torch.network.weights import ModelWeights

logger = logging.getLogger(__name__)

_WARM_UP_RUNS = 2
"Runs before a capture, in which libraries choose their kernels and allocate their memory."

ShapeT = TypeVar("ShapeT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class StepShape:
    """Shape of a step: how many rows it computes, and how much of the caches it reads."""

    rows: int
    "Number of rows: the step computes the first ones of the state."
    tokens: int
    "Upper limit for the tokens of a row."
    encoder_positions: int
    "Upper limit for the encoder positions of a row."
    kind: StepKind = StepKind.PLAIN
    is_full: bool = False
    "True: all rows attend to exactly `encoder_positions`."


@dataclass(frozen=True, slots=True)
class EncodeShape:
    """Shape of an encoder call: number of windows, and their length in mel frames."""

    windows: int
    frames: int


class KernelLauncher(Protocol):
    """Launches the computations of one model; both implementations compute the same."""

    @property
    def captured(self) -> Sequence["StepShape | EncodeShape"]:
        """Shapes that have a graph."""
        ...

    def step(self, shape: StepShape) -> None:
        """Computes the next token of the first rows of the state; does not wait for the device."""
        ...

    def encode(self, mel: torch.Tensor) -> torch.Tensor:
        """Encodes windows: shape (windows, mels, frames) -> (windows, frames / 2, width).

        The result is valid until the next call.
        """
        ...


class EagerLauncher:
    """Launches kernel by kernel, which works on every device; the reference for graphs."""

    def __init__(self, weights: ModelWeights, state: DecoderState) -> None:
        self._weights, self._state = weights, state
        self.captured: Sequence[StepShape | EncodeShape] = ()

    def step(self, shape: StepShape) -> None:
        """Computes the next tokens (see `KernelLauncher.step`)."""
        decoder = self._weights.decoder
        scores = step(
            decoder,
            self._state,
            shape.rows,
            shape.tokens,
            shape.encoder_positions,
            is_full=shape.is_full,
        )
        now = RowPositions.of(self._state, shape.rows)
        allowed = apply_logit_rules(self._state, now, scores, shape.kind)
        choose_tokens(self._state, now, scores, allowed, tokens=shape.tokens, kind=shape.kind)

    def encode(self, mel: torch.Tensor) -> torch.Tensor:
        """Encodes windows (see `KernelLauncher.encode`)."""
        return encode(self._weights.encoder, mel)


class _GraphPool:
    """Streams and memory for the captures of one model.

    cuBLAS keeps memory for each stream. For the capturing stream it is allocated in the first
    capture, from the graphs' pool, and lives as long as the graphs. So other code can free cuBLAS's
    memory (`torch.compile` does) without taking it from them. One stream for all warm-up runs is
    enough: each stream costs 32 MB.
    """

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.warm_up_stream, self.capture_stream = torch.cuda.Stream(), torch.cuda.Stream()

    def capture(self, call: Callable[[], None]) -> Any:
        """Runs `call` on a side stream, as torch demands, then records it and returns the graph.

        `call` must use static buffers only.
        """
        current, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
        try:
            self.warm_up_stream.wait_stream(current)
            with torch.cuda.stream(self.warm_up_stream):
                for _ in range(_WARM_UP_RUNS):
                    call()
            current.wait_stream(self.warm_up_stream)
            # `thread_local`: other threads may use the device meanwhile without an error here.
            with torch.cuda.graph(
                graph, self.pool, self.capture_stream, capture_error_mode="thread_local"
            ):
                call()
        finally:
            torch.cuda.set_stream(current)  # a failed capture does not restore the stream itself
        return graph


@dataclass(slots=True)
class _GraphCache(Generic[ShapeT]):
    """Captured calls by shape."""

    pool: _GraphPool
    captured: dict[ShapeT, Any] = field(default_factory=dict)

    def capture(self, key: ShapeT, call: Callable[[], None]) -> None:
        self.captured[key] = self.pool.capture(call)

    def replay(self, key: ShapeT) -> bool:
        """Launches the graph of a shape; returns False if there is none."""
        graph = self.captured.get(key)
        if graph is None:
            return False
        graph.replay()
        return True


class CudaGraphLauncher:
    """Launches graphs for the shapes that were captured; the others go kernel by kernel."""

    def __init__(self, weights: ModelWeights, state: DecoderState) -> None:
        self._eager = EagerLauncher(weights, state)
        self._mels, self._dtype, self._device = weights.shape.mels, weights.dtype, weights.device
        pool = _GraphPool()
        self._steps = _GraphCache[StepShape](pool)
        self._encodes = _GraphCache[EncodeShape](pool)
        self._windows: dict[EncodeShape, tuple[torch.Tensor, torch.Tensor]] = {}

    def warm_up(
        self,
        shapes: Sequence[StepShape | EncodeShape],
        budget_s: float,
        now: Callable[[], float],
    ) -> int:
        """Captures graphs in this order and returns their number.

        It stops when the budget is used up or a capture fails, perhaps for lack of memory. The
        remaining shapes go kernel by kernel. No row may be in use, because the warm-up runs
        write to the rows.
        """
        began = now()
        try:
            for shape in shapes:
                if now() - began > budget_s:
                    break
                if isinstance(shape, StepShape):
                    self._steps.capture(shape, partial(self._eager.step, shape))
                else:
                    self._capture_encoder(shape)
        except RuntimeError as error:  # of torch, whose message may be a page long
            reason = str(error).partition("\n")[0]
            logger.warning(
                "= asr.whisper_torch: the remaining CUDA graphs were not captured: %s", reason
            )
        torch.cuda.synchronize()  # the warm-up runs write to the rows, on a stream of their own
        return len(self.captured)

    @property
    def captured(self) -> Sequence[StepShape | EncodeShape]:
        """Shapes that have a graph."""
        return [*self._steps.captured, *self._encodes.captured]

    def step(self, shape: StepShape) -> None:
        """Computes the next tokens (see `KernelLauncher.step`)."""
        if not self._steps.replay(shape):
            self._eager.step(shape)

    def encode(self, mel: torch.Tensor) -> torch.Tensor:
        """Encodes windows (see `KernelLauncher.encode`)."""
        shape = EncodeShape(mel.shape[0], mel.shape[2])
        if shape not in self._windows:
            return self._eager.encode(mel)
        window, encoded = self._windows[shape]
        window.copy_(mel)
        self._encodes.replay(shape)
        return encoded.clone()  # the next call overwrites the buffer, perhaps before it is read

    def _capture_encoder(self, shape: EncodeShape) -> None:
        size = (shape.windows, self._mels, shape.frames)
        window = torch.zeros(size, dtype=self._dtype, device=self._device)
        found: list[torch.Tensor] = []

        def call() -> None:
            found[:] = [self._eager.encode(window)]

        self._encodes.capture(shape, call)
        self._windows[shape] = (window, found[0])
