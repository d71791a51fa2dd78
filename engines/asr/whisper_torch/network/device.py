"""A model on its device, with everything that one thread needs to run it."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import torch

from engines.asr.whisper_torch.batching.kv_cache import DecoderState, StepKind
from engines.asr.whisper_torch.batching.slots import (
    HEARD_STEP,
    ROW_BUCKETS,
    SAID_BUCKETS,
    SlotTable,
)
from engines.asr.whisper_torch.checkpoint import ModelShape, SpecialTokens, read_shape, read_special
from engines.asr.whisper_torch.network.cuda_graphs import (
    CudaGraphLauncher,
    EagerLauncher,
    EncodeShape,
    KernelLauncher,
    StepShape,
)
from engines.asr.whisper_torch.network.decoder import cross_keys_values, forced_decode, scores
from engines.asr.whisper_torch.network.features import DeviceLogMel
from engines.asr.whisper_torch.network.linear import WeightStorage
from engines.asr.whisper_torch.network.pinned_upload import upload
from engines.asr.whisper_torch.network.weights import ModelWeights, build, read_tensors

ENCODED_AT_ONCE = (8, 4, 2, 1)
"Windows. More fill no GPU better, and make everybody else's step wait longer."

USUAL_FRAMES = 1000
"Of longer windows only single ones are captured: their kernels take longer than launching them."

COMPUTE_TYPES: dict[str, tuple[torch.dtype, WeightStorage]] = {
    "float32": (torch.float32, "plain"),
    "float16": (torch.float16, "plain"),
    "bfloat16": (torch.bfloat16, "plain"),
    "int8_float32": (torch.float32, "int8"),
    "int8_float16": (torch.float16, "int8"),
    "int8_bfloat16": (torch.bfloat16, "int8"),
    "fp8_float16": (torch.float16, "fp8"),
    "fp8_bfloat16": (torch.bfloat16, "fp8"),
}
"What is computed in, and how the matrices are kept."


class DeviceModel:
    """Owned by one thread."""

    def __init__(self, weights: ModelWeights, special: SpecialTokens, capacity: int) -> None:
        self.weights, self.special, self.capacity = weights, special, capacity
        self.shape, self.dtype = weights.shape, weights.dtype
        self.features = DeviceLogMel(self.shape.mels, weights.device)
        self.state = DecoderState(self.shape, special, capacity, weights.dtype, weights.device)
        self.launcher: KernelLauncher = EagerLauncher(weights, self.state)
        self.rows = SlotTable(weights, self.state, self.launcher)

    def capture(
        self, frames: Sequence[int], budget_s: float, now: Callable[[], float]
    ) -> tuple[int, int]:
        """Graphs for windows of these lengths, the likeliest shapes first, as many as fit the
        budget. How many were captured, of how many."""
        captured = CudaGraphLauncher(self.weights, self.state)
        wanted = shapes(self.shape, frames, self.capacity)
        count = captured.warm_up(wanted, budget_s, now)
        self.launcher = captured
        self.rows = SlotTable(self.weights, self.state, captured)
        return count, len(wanted)

    def languages(self, encoded: torch.Tensor) -> dict[int, float]:
        """How likely each language token is as the first of a transcript of (positions, width).
        Waits for the device; any thread may ask."""
        decoder = self.weights.decoder
        audio = cross_keys_values(decoder, self.shape, encoded)
        start = upload(torch.tensor([self.special.start]), encoded.device)
        output, _, _ = forced_decode(decoder, self.shape, start, audio)
        wanted = list(self.special.languages)
        chances = scores(decoder, output[0])[wanted].softmax(0)
        return dict(zip(wanted, chances.tolist(), strict=True))


def open_device(
    folder: Path,
    compute_type: str,
    device: str,
    capacity: int,
    special: SpecialTokens | None = None,
) -> DeviceModel:
    """Read a checkpoint. Raises ConfigError."""
    shape = read_shape(folder)
    dtype, kept = COMPUTE_TYPES[compute_type]
    weights = build(read_tensors(folder), shape, dtype=dtype, device=device, kept=kept)
    choose_kernels(weights.device)
    return DeviceModel(weights, special or read_special(folder, shape), capacity)


def choose_kernels(device: torch.device) -> None:
    """For the whole process. torch may attend by cuDNN, which makes a plan for each shape that it
    meets: every new length of a prompt would stop all rows meanwhile (for how long was not
    measured). Flash and memory-efficient attention plan nothing."""
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)


def shapes(
    shape: ModelShape, frames: Sequence[int], capacity: int
) -> list[StepShape | EncodeShape]:
    """What may be asked for, the likeliest first: what short greedy answers to short utterances
    need, then each time what is longer, or chosen with more effort."""
    rows = [*(size for size in ROW_BUCKETS if size < capacity), capacity]
    said = [*(size for size in SAID_BUCKETS if size < shape.text_positions), shape.text_positions]
    heard = sorted({min(f // 2, shape.audio_positions) for f in frames})
    looked_at = sorted(
        {min(-(-h // HEARD_STEP) * HEARD_STEP, shape.audio_positions) for h in heard}
    )
    found: list[tuple[int, StepShape | EncodeShape]] = []
    few = [f for f in frames if f <= USUAL_FRAMES] or frames
    for rank, windows in enumerate(reversed(ENCODED_AT_ONCE)):
        found += [(rank, EncodeShape(windows, f)) for f in few]
    found += [(1, EncodeShape(1, f)) for f in frames if f not in few]
    for (i, length), kind in product(enumerate(said), StepKind):
        for h, count in product(looked_at, rows):
            # Rows that all listen to so much: to windows of just that length, or to whole ones.
            evens = [even for even in (True, False) if len(heard) > 1 or even == (h in heard)]
            evens = evens if h in heard else [False]
            found += [(i + kind, StepShape(count, length, h, kind, even)) for even in evens]
    return [one for _, one in sorted(found, key=lambda ranked: ranked[0])]
