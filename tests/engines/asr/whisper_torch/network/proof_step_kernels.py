"""The operations of a step on a GPU, counted without one: no wait for the device, and few kernels.

Tensors on torch's device `meta` have shapes but no values, so an operation that needs some (`item`,
`nonzero`, a mask as an index, a copy) raises.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.gpu.random_models import tensors
from engines.asr.whisper.windows import (
    FRAME_SAMPLES,
    WINDOW_SAMPLES,
    all_window_frames,
    window_frames,
)
from engines.asr.whisper_torch.batching.kv_cache import DecoderState, NewRow, StepKind
from engines.asr.whisper_torch.batching.slots import graph_shape
from engines.asr.whisper_torch.checkpoint import ModelShape, SpecialTokens
from engines.asr.whisper_torch.network import cuda_graphs
from engines.asr.whisper_torch.network.cuda_graphs import EagerLauncher, EncodeShape, StepShape
from engines.asr.whisper_torch.network.device import DeviceModel, shapes_to_capture
from engines.asr.whisper_torch.network.weights import build
from engines.base import AsrPadding
from tests.engines.asr.whisper_torch.network.fake_cuda_graphs import pretend

pytestmark = pytest.mark.live

SMALL = ModelShape(80, 64, 2, 2, 4, 2, 51865)
"It has as many decoder layers as turbo."
SPECIAL = SpecialTokens(50258, 50257, 50363, 50362, suppressed=(1, 2), suppressed_first=(220,))


class Kernels(TorchDispatchMode):  # type: ignore[misc]
    """Counts the computed operations; a view is not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.names = Counter[str]()
        self.devices = set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        returns = func._schema.returns
        if not any(one.alias_info and not one.alias_info.is_write for one in returns):
            self.names[str(func)] += 1
        tensors_in = [one for one in args if isinstance(one, torch.Tensor)]
        for one in [*tensors_in, *(found if isinstance(found, tuple | list) else [found])]:
            if isinstance(one, torch.Tensor):
                self.devices.add(one.device.type)
        return found


def small(
    device: str = "cpu", dtype: torch.dtype = torch.float32, capacity: int = 8
) -> DeviceModel:
    weights = build(tensors(SMALL, "cpu", dtype), SMALL, dtype=dtype, device=device)
    return DeviceModel(weights, SPECIAL, capacity)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.parametrize("kind", StepKind)
def test_a_step_neither_waits_for_the_device_nor_leaves_it(
    kind: StepKind, is_full: bool, dtype: torch.dtype
) -> None:
    with torch.inference_mode():
        device = small("meta", dtype)
        launcher = EagerLauncher(device.weights, device.state)
        with Kernels() as kernels:
            launcher.step(StepShape(8, 64, 1500, kind, is_full))
            launcher.encode(torch.empty(2, 80, 500, device="meta", dtype=dtype))
    assert kernels.devices == {"meta"}


@pytest.mark.parametrize(
    "waiting", [lambda x: x[0].item(), lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: x.cpu()]
)
def test_waiting_for_the_device_would_be_detected(waiting: Callable[[torch.Tensor], Any]) -> None:
    """The test above relies on it."""
    with pytest.raises((RuntimeError, NotImplementedError)):
        waiting(torch.zeros(3, device="meta"))


def test_another_device_would_be_detected() -> None:
    with Kernels() as kernels:
        torch.zeros(3, device="meta").masked_fill(torch.zeros(3, device="meta") > 0, 1)
        torch.arange(3)
    assert kernels.devices == {"meta", "cpu"}


@pytest.mark.parametrize(
    ("new", "most"),
    [
        (NewRow((50258, 50363), 20), 99),
        (NewRow((50258,), 20, is_timed=True), 145),
        (NewRow((50258, 50363), 20, temperature=0.5), 184),
        (NewRow((50258, 50363), 20, beam_size=5), 265),
    ],
    ids=["greedy", "timed", "drawn", "beam"],
)
def test_a_token_takes_few_kernels(new: NewRow, most: int) -> None:
    """Four layers, as turbo has, take 70 of them. Without graphs each is launched on its own."""
    with torch.inference_mode():
        device = small()
        device.rows.join(0, new, torch.randn(1500, 64))
        device.rows.step()
        with Kernels() as kernels:
            device.rows.step()
    assert sum(kernels.names.values()) <= most, kernels.names


@pytest.mark.parametrize("new", [NewRow((50258, 50363), 20), NewRow((50258,), 20, is_timed=True)])
def test_only_beams_copy_tokens(new: NewRow) -> None:
    with torch.inference_mode():
        device = small()
        device.rows.join(0, new, torch.randn(1500, 64))
        with Kernels() as kernels:
            device.rows.step()
        assert not kernels.names["aten.index_select.default"]
        device.rows.join(1, NewRow((50258, 50363), 20, beam_size=2), torch.randn(1500, 64))
        with Kernels() as kernels:
            device.rows.step()
        assert kernels.names["aten.index_select.default"] == 1


def test_startup_survives_a_graph_that_cannot_be_captured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend(monkeypatch, fails_at=4)
    with torch.inference_mode(), caplog.at_level(logging.WARNING):
        device = small()
        count, of = device.capture((3000,), 1e9, lambda: 0.0)
        assert count == 3 < of
        device.rows.join(0, NewRow((50258, 50363), 6), torch.randn(1500, 64))
        for _ in range(6):
            device.rows.step()
        (slot_range,) = device.rows.ended()
        assert len(device.rows.answers([slot_range])[0].tokens) == 4
    (record,) = caplog.records
    assert record.message.endswith(
        "CUDA graphs were not captured: CUDA out of memory. Tried to allocate much"
    )


def test_capturing_stops_at_its_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    seconds = iter(range(100))
    with torch.inference_mode():
        count, _ = small().capture((3000,), 4.5, lambda: float(next(seconds)))
    assert count == 4


@pytest.mark.parametrize("padding", ["max", "bucket", "longest", "nopad"])
def test_every_window_and_step_has_a_graph(padding: AsrPadding) -> None:
    """This covers short answers of any kind, for windows of any possible length."""
    frames = all_window_frames(padding)
    wanted = shapes_to_capture(SMALL, frames, 8)
    assert len(wanted) == len(set(wanted))
    state = DecoderState(SMALL, SPECIAL, 8, torch.float32, torch.device("cpu"))
    for samples in range(0, WINDOW_SAMPLES, 7 * FRAME_SAMPLES):
        length = window_frames(samples, padding)
        assert EncodeShape(1, length) in wanted
        if length <= 1000 or padding == "max":
            assert EncodeShape(8, length) in wanted
        for kind in StepKind:
            assert graph_shape(state, 3, 20, length // 2, kind, is_full=True) in wanted
            if padding != "max":
                assert graph_shape(state, 3, 20, length // 2, kind) in wanted


def test_captured_graphs_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows have the engine's lengths, and no kernel is launched on its own."""
    pretend(monkeypatch)
    with torch.inference_mode():
        device = small(capacity=2)
        device.capture(all_window_frames("nopad")[:4], 1e9, lambda: 0.0)
        captured, replayed = device.launcher, list[bool]()
        replay = cuda_graphs._GraphCache.replay

        def seen(self: Any, key: Any) -> bool:
            replayed.append(replay(self, key))
            return replayed[-1]

        monkeypatch.setattr(cuda_graphs._GraphCache, "replay", seen)
        window = torch.randn(1, 80, window_frames(30_000, "nopad"))
        (encoded,) = captured.encode(window)
        device.rows.join(0, NewRow((50258, 50363), 20), encoded)
        device.rows.step()
    assert replayed == [True, True]
