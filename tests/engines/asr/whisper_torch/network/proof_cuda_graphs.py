"""The capture and replay of graphs, and the operations on a GPU, tested without one."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.cuda._utils import _get_device_index

from bench.gpu.correctness import graphs_with_eager
from bench.gpu.random_models import tensors
from engines.asr.whisper_torch.batching.kv_cache import NewRow, StepKind
from engines.asr.whisper_torch.batching.slots import MAX_STEPS_AHEAD
from engines.asr.whisper_torch.checkpoint import ModelShape, SpecialTokens
from engines.asr.whisper_torch.network.cuda_graphs import (
    CudaGraphLauncher,
    EagerLauncher,
    EncodeShape,
    StepShape,
)
from engines.asr.whisper_torch.network.device import DeviceModel, choose_kernels
from engines.asr.whisper_torch.network.features import DeviceLogMel
from engines.asr.whisper_torch.network.weights import _TensorReader, build
from tests.engines.asr.whisper_torch.network.fake_cuda_graphs import pretend

pytestmark = pytest.mark.live

SMALL = ModelShape(80, 64, 2, 2, 2, 2, 2000, audio_positions=500)
SPECIAL = SpecialTokens(400, 399, 405, 404, suppressed=(1, 2), suppressed_first=(220,))
NEW = NewRow((400, 405), 8, suppressed=(399,))


def small(capacity: int = 3) -> DeviceModel:
    named = tensors(SMALL, "cpu", torch.float32)
    return DeviceModel(build(named, SMALL, dtype=torch.float32, device="cpu"), SPECIAL, capacity)


def test_a_replay_computes_the_same_as_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same kernels run again on the same tensors, so no step may depend on a decision or a copy
    made during the launch."""
    pretend(monkeypatch)
    steps = [StepShape(3, said, 500, kind) for kind in StepKind for said in (64, 448)]
    shapes: list[StepShape | EncodeShape] = [*steps]
    shapes += [StepShape(1, 64, 500, is_full=True), EncodeShape(2, 1000)]
    with torch.inference_mode():
        device = small()
        captured = CudaGraphLauncher(device.weights, device.state)
        device.launcher = captured
        assert captured.warm_up(shapes, 1e9, lambda: 0.0) == len(shapes)
        assert graphs_with_eager(device) == (len(shapes), len(shapes))


def test_an_encoding_is_not_overwritten_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    with torch.inference_mode():
        device = small()
        captured = CudaGraphLauncher(device.weights, device.state)
        captured.warm_up([EncodeShape(2, 1000)], 1e9, lambda: 0.0)
        mels = torch.randn(3, 2, 80, 1000)
        found = [captured.encode(mel) for mel in mels]
        eager = EagerLauncher(device.weights, device.state)
        for mel, mine in zip(mels, found, strict=True):
            assert torch.allclose(mine, eager.encode(mel), atol=1e-5)


def test_a_capture_is_rehearsed_on_a_side_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is captured on a stream of its own, because cuBLAS takes that stream's memory from the
    graphs'."""
    cuda = pretend(monkeypatch)
    with torch.inference_mode():
        device = small()
        captured = CudaGraphLauncher(device.weights, device.state)
        captured.warm_up([StepShape(1, 64, 500), StepShape(2, 64, 500)], 1e9, lambda: 0.0)
    one = [
        *("side 1 waits for usual", "on side 1", "usual waits for side 1"),
        "capture on side 2",
    ]
    assert cuda.told == [*one, *one, "synchronize"]


def test_a_failed_capture_restores_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = pretend(monkeypatch, fails_at=2)
    with torch.inference_mode():
        count, _ = small().capture((1000,), 1e9, lambda: 0.0)
    assert count == 1
    assert cuda.current.name == "usual"
    assert cuda.told[-1] == "synchronize"


def test_a_thread_can_select_the_model_s_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs the GPU's number, even if only `cuda` was configured."""
    named = tensors(SMALL, "cpu", torch.float32)

    def moved(self: Any, name: str) -> torch.Tensor:
        return torch.empty(named[name].shape, device="cuda")

    monkeypatch.setattr(_TensorReader, "plain", moved)
    with FakeTensorMode():
        weights = build(named, SMALL, dtype=torch.float16, device="cuda")
    assert _get_device_index(weights.device) == 0
    with pytest.raises(ValueError, match="specified index"):
        _get_device_index(torch.device("cuda"))


def test_attention_on_a_gpu_does_not_use_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        choose_kernels(torch.device("cpu"))
        assert torch.backends.cuda.cudnn_sdp_enabled()
        choose_kernels(torch.device("cuda:0"))
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_fourier_transforms_have_few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU plans each size when it first computes it."""
    sizes, transform = set[int](), torch.stft

    def noted(samples: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        sizes.add(len(samples))
        return transform(samples, *arguments, **options)

    monkeypatch.setattr(torch, "stft", noted)
    features = DeviceLogMel(80, torch.device("cpu"))
    noise = np.random.default_rng(0).normal(0, 3000, 480_000).astype(np.int16)
    whole = features.powers(noise)
    for samples in range(1600, 480_000, 47_973):
        few = features.powers(noise[:samples])
        assert few.shape[1] == -(-(samples + 200) // 160)
        inner = samples // 160 - 2
        assert torch.equal(few[:, :inner], whole[:, :inner])
    assert all((size - 400) // 160 % 100 == 99 for size in sizes)


@dataclass
class Event:
    """Replaces `torch.cuda.Event` for a device that is as slow as the test sets."""

    is_reached: bool = False
    waits: int = 0

    def record(self) -> None:
        self.is_reached = False

    def query(self) -> bool:
        return self.is_reached

    def synchronize(self) -> None:
        self.waits += 1
        self.is_reached = True


def test_the_device_is_waited_for_only_when_it_is_behind() -> None:
    with torch.inference_mode():
        device, event = small(), Event()
        rows = device.rows
        rows._done_event = event
        rows.join(0, NEW, torch.randn(500, 64))
        for _ in range(MAX_STEPS_AHEAD):
            rows.step()
            assert rows.ended() == []
            assert event.waits == 0
        rows.step()
        rows.ended()
    assert event.waits == 1


def test_a_new_row_has_not_ended_with_the_former_one_of_its_slot() -> None:
    """Both have the same request, and the end of the first is reported once the second has
    joined."""
    with torch.inference_mode():
        device, event = small(), Event()
        rows = device.rows
        rows._done_event = event
        short = NewRow((400, 405), 3, suppressed=(399,))
        encoded = torch.randn(500, 64)
        first = rows.join(0, short, encoded)
        rows.step()
        rows.step()
        assert rows.ended() == []  # queried: the row has ended
        rows.leave(first)
        second = rows.join(0, short, encoded)
        rows.step()
        rows.step()
        second.length = first.length
        event.is_reached = True
        assert rows.ended() == []
