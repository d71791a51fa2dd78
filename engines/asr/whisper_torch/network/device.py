"""A model on its device, with all that its thread needs to run it."""

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import torch

from engines.asr.whisper_torch.batching.kv_cache import DecoderState, StepKind, upload
from engines.asr.whisper_torch.batching.slots import (
    ENCODER_POSITION_STEP,
    ROW_BUCKETS,
    TOKEN_BUCKETS,
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
from engines.asr.whisper_torch.network.weights import ModelWeights, build, read_tensors

ENCODE_BATCH_SIZES = (8, 4, 2, 1)
"Numbers of windows per encoder call. More would not use a GPU better, and delay all rows longer."

MAX_BATCHED_FRAMES = 1000
"""Longest windows, in mel frames, for which batches are captured. Of longer windows only calls with
one are captured: their kernels take longer than their launches."""

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
"Compute type -> number type of the computation, and storage of the matrices."


class DeviceModel:
    """Weights, state of the rows and launcher of one model; used by one thread.

    capacity: number of rows.
    """

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
        """Captures CUDA graphs, the most probable shapes first, as many as the budget allows.

        frames: lengths of windows in mel frames. budget_s: longest time. now: a clock in s.
        Returns (number of captured graphs, number of all shapes).
        """
        captured = CudaGraphLauncher(self.weights, self.state)
        wanted = shapes_to_capture(self.shape, frames, self.capacity)
        count = captured.warm_up(wanted, budget_s, now)
        self.launcher = captured
        self.rows = SlotTable(self.weights, self.state, captured)
        return count, len(wanted)

    def languages(self, encoded: torch.Tensor) -> dict[int, float]:
        """Returns language token -> probability for a window. Waits for the device.

        encoded: encoder output, shape (positions, width). Any thread may call it.
        """
        decoder = self.weights.decoder
        audio = cross_keys_values(decoder, self.shape, encoded)
        start = upload(torch.tensor([self.special.start]), encoded.device)
        output, _, _ = forced_decode(decoder, self.shape, start, audio)
        wanted = list(self.special.languages)
        probabilities = scores(decoder, output[0])[wanted].softmax(0)
        return dict(zip(wanted, probabilities.tolist(), strict=True))


def open_device(
    folder: Path,
    compute_type: str,
    device: str,
    capacity: int,
    special: SpecialTokens | None = None,
) -> DeviceModel:
    """Loads a checkpoint onto a device. Raises ConfigError if it cannot be read.

    compute_type: a key of COMPUTE_TYPES. capacity: number of rows. special: None: from the
    checkpoint.
    """
    shape = read_shape(folder)
    dtype, storage = COMPUTE_TYPES[compute_type]
    weights = build(read_tensors(folder), shape, dtype=dtype, device=device, storage=storage)
    choose_kernels(weights.device)
    return DeviceModel(weights, special or read_special(folder, shape), capacity)


def choose_kernels(device: torch.device) -> None:
    """Turns off attention by cuDNN, in the whole process.

    cuDNN makes a plan for each new shape. So every new length of a prompt would stop all rows
    meanwhile (for how long was not measured). Flash and memory-efficient attention need no plan.
    """
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)


def shapes_to_capture(
    shape: ModelShape, frames: Sequence[int], capacity: int
) -> list[StepShape | EncodeShape]:
    """Returns all shapes to capture, the most probable first.

    The first ones are for short greedy answers to short utterances; then come longer answers and
    more complex kinds of steps.
    """
    rows = [*(size for size in ROW_BUCKETS if size < capacity), capacity]
    token_counts = [
        *(size for size in TOKEN_BUCKETS if size < shape.text_positions),
        shape.text_positions,
    ]
    encoder_positions = sorted({min(f // 2, shape.audio_positions) for f in frames})
    rounded_positions = sorted(
        {
            min(-(-h // ENCODER_POSITION_STEP) * ENCODER_POSITION_STEP, shape.audio_positions)
            for h in encoder_positions
        }
    )
    found: list[tuple[int, StepShape | EncodeShape]] = []
    batched = [f for f in frames if f <= MAX_BATCHED_FRAMES] or frames
    for rank, windows in enumerate(reversed(ENCODE_BATCH_SIZES)):
        found += [(rank, EncodeShape(windows, f)) for f in batched]
    found += [(1, EncodeShape(1, f)) for f in frames if f not in batched]
    for (i, length), kind in product(enumerate(token_counts), StepKind):
        for h, count in product(rounded_positions, rows):
            # `is_full` is possible only if windows of exactly this length occur. If there is but
            # one length of windows, all rows are always full.
            fullness = [
                is_full
                for is_full in (True, False)
                if len(encoder_positions) > 1 or is_full == (h in encoder_positions)
            ]
            fullness = fullness if h in encoder_positions else [False]
            found += [
                (i + kind, StepShape(count, length, h, kind, is_full)) for is_full in fullness
            ]
    return [candidate for _, candidate in sorted(found, key=lambda ranked: ranked[0])]
