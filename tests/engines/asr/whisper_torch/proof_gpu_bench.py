"""`python -m bench.gpu`: it runs on a bare machine, its checks find errors, its arithmetic is
right."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bench.gpu import __main__ as gpu
from bench.gpu import run
from bench.gpu.correctness import (
    graphs_with_eager,
    is_varied,
    teacher_forced,
    texts_of_transformers,
    with_transformers,
)
from bench.gpu.cuda_clock import DeviceSpeed, FailedCall, RunTimes, compare
from bench.gpu.random_models import END, NO_TIMESTAMPS, SHAPES, START, tensors, write
from bench.gpu.roofline import encoder_flop, floor_ms, step_bytes
from bench.gpu.transformers_baseline import loaded
from bench.gpu.whisper_torch import generate_tokens, open_engine, open_model
from engines.asr.whisper_torch.batching.kv_cache import DecoderState, NewRow
from engines.asr.whisper_torch.batching.slots import SlotTable
from engines.asr.whisper_torch.checkpoint import SpecialTokens
from engines.asr.whisper_torch.network.cuda_graphs import StepShape
from engines.asr.whisper_torch.network.device import DeviceModel
from engines.asr.whisper_torch.network.weights import build
from engines.base import AsrItem, AsrOptions
from tests.engines.asr.whisper_torch import driver
from tests.engines.asr.whisper_torch.driver import Wish
from tests.engines.asr.whisper_torch.network.fake_cuda_graphs import pretend
from tests.shared import ROOT

pytestmark = pytest.mark.live

H200 = DeviceSpeed(bytes_per_s=4.3e12, flop_per_s=790e12)
TOKENS = 24

BARE = """
import importlib.abc, runpy, sys

refused = {"msgspec", "ctranslate2", "faster_whisper", "aiohttp", "aiortc"}
refused |= {"media", "serving", "pipeline", "server"}

class Refusing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in refused:
            raise ModuleNotFoundError(f"no {name} on this machine", name=name)

sys.meta_path.insert(0, Refusing())
sys.argv[1:] = ["--device", "cpu", "--tiny"]
runpy.run_module("bench.gpu", run_name="__main__")
"""


def test_every_part_runs_without_the_server_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = done.stdout
    assert "| toy: state after a graph, after its kernels | 0 graphs | none captured |" in told
    assert "| toy: ours, transformers | steps, beam 1 | 1.0000 |" in told
    assert "beam 5 | 1.0000 |" in told
    assert told.count("|---|") >= 7
    assert "failed" not in told


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeviceModel, Any]:
    folder = write(tmp_path_factory.mktemp("toy"), "toy", "cpu", torch.float32)
    with torch.inference_mode():
        model = open_model(folder, "float32", "cpu", 8, 0)
        return model, loaded(folder, torch.float32, "cpu")


@pytest.fixture(scope="module")
def windows(toy: tuple[DeviceModel, Any]) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(5)
    return [torch.randn(toy[0].shape.mels, 3000, generator=source) for _ in range(3)]


@pytest.mark.parametrize("beams", [1, 5])
def test_a_decoder_that_ignores_the_audio_is_detected(
    toy: tuple[DeviceModel, Any],
    windows: list[torch.Tensor],
    beams: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, reference = toy
    with torch.inference_mode():
        texts = texts_of_transformers(reference, windows, TOKENS, beams)
        assert is_varied(texts)
        assert with_transformers(model, windows, texts, beams) == 1
        fill_rows = DecoderState.fill_rows
        monkeypatch.setattr(
            DecoderState,
            "fill_rows",
            lambda self, first, new, audio: fill_rows(self, first, new, 0 * audio),
        )
        assert with_transformers(model, windows, texts, beams) < 0.9


def test_texts_that_prove_nothing_are_detected() -> None:
    assert is_varied([[1, 2, 3, 4], [1, 2, 3, 5]])
    assert not is_varied([[1, 2, 3, 4], [1, 2, 3, 4]])
    assert not is_varied([[1, 1, 1, 1], [1, 2, 3, 5]])


@pytest.mark.parametrize("name", ["base", "turbo"])
def test_decoders_of_real_shapes_give_varied_texts(name: str) -> None:
    """The windows resemble the encoder's output for noise, of which half is common to all windows,
    as measured with base. The encoder's own layers are left out, because they take minutes."""
    shape = replace(SHAPES[name], encoder_layers=0)
    special = SpecialTokens(START, END, NO_TIMESTAMPS + (shape.mels == 128), None)
    with torch.inference_mode():
        named = tensors(shape, "cpu", torch.float32)
        weights = build(named, shape, dtype=torch.float32, device="cpu", storage="plain")
        source = torch.Generator().manual_seed(2)
        common, *own = (torch.randn(250, shape.width, generator=source) / 2**0.5 for _ in range(4))
        prompt = (START, special.no_timestamps)
        new = NewRow(prompt, len(prompt) + 10, suppressed=(END,))
        wishes = [Wish(index, new) for index in range(len(own))]
        model = DeviceModel(weights, special, len(own))
        said = driver.answers(model, [common + one for one in own], wishes)
    assert is_varied([said[i].tokens for i in range(3)])


def test_one_tie_counts_as_one_difference(
    toy: tuple[DeviceModel, Any], windows: list[torch.Tensor]
) -> None:
    model, _ = toy
    with torch.inference_mode():
        (written,) = generate_tokens(model, windows[:1], TOKENS)
        said = list(written.tokens)
        other = said[8] + 1
        (rest,) = generate_tokens(model, windows[:1], TOKENS - 9, given=[*said[:8], other])
        text = [*said[:8], other, *rest.tokens]
        assert teacher_forced(model, windows[:1], [said]) == 1
        assert teacher_forced(model, windows[:1], [text]) == 1 - 1 / TOKENS


class Wrong:
    """A launcher that replays one graph captured for fewer tokens than it is used for."""

    def __init__(self, launcher: Any, bad: StepShape) -> None:
        self._launcher, self._bad = launcher, bad
        self.captured: Sequence[Any] = launcher.captured

    def step(self, shape: StepShape) -> None:
        self._launcher.step(replace(shape, tokens=8) if shape == self._bad else shape)

    def encode(self, mel: torch.Tensor) -> torch.Tensor:
        encoded: torch.Tensor = self._launcher.encode(mel)
        return encoded


def test_every_graph_is_compared(
    toy: tuple[DeviceModel, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch)
    model = DeviceModel(toy[0].weights, toy[0].special, 5)
    with torch.inference_mode():
        assert graphs_with_eager(model) == (0, 0)
        ticks = iter(range(10_000))
        count, _ = model.capture((500,), 90, lambda: float(next(ticks)))
        assert graphs_with_eager(model) == (count, count)
        kinds = {shape.kind for shape in model.launcher.captured if isinstance(shape, StepShape)}
        assert len(kinds) == 5
        bad = [shape for shape in model.launcher.captured if isinstance(shape, StepShape)][7]
        model.launcher = Wrong(model.launcher, bad)
        model.rows = SlotTable(model.weights, model.state, model.launcher)
        assert graphs_with_eager(model) == (count - 1, count)


@pytest.mark.parametrize(
    ("found", "text", "share", "failed"),
    [
        ((3, 3), 5, 1.0, []),
        ((2, 3), 5, 1.0, ["toy, graphs: 1 of 3 differ from single kernels"]),
        (
            (0, 0),
            5,
            0.998,
            [f"toy, tokens: 0.9980 equal to transformers', beam {n}" for n in (1, 5)],
        ),
        (
            (0, 0),
            4,
            1.0,
            [f"toy, texts: too repetitive to prove anything, beam {n}" for n in (1, 5)],
        ),
    ],
    ids=["none", "graphs", "tokens", "texts"],
)
def test_a_failed_check_is_named_and_sets_the_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    found: tuple[int, int],
    text: int,
    share: float,
    failed: list[str],
) -> None:
    """The times are reported nevertheless, after the checks that concern them."""
    texts = [[1, 2, 3, 4], [1, 2, 3, text]]
    for name, stands_in in (
        ("loaded", lambda *_: None),
        ("graphs_with_eager", lambda _: found),
        ("texts_of_transformers", lambda *_: texts),
        ("with_transformers", lambda *_: share),
    ):
        monkeypatch.setattr(run, name, stands_in)
    monkeypatch.setattr(gpu, "generate_tokens", lambda *_: None)
    status = gpu.main(["--device", "cpu", "--tiny", "--only", "sizes"])
    told = capsys.readouterr().out
    assert status == bool(failed)
    assert [line for line in told.splitlines() if line.startswith("failed")] == [
        f"failed: {one}" for one in failed
    ]
    assert told.index("| toy: ours, transformers |") < told.index("| 30 s, 50 tokens |")


def test_utterances_are_decoded_to_text(toy: tuple[DeviceModel, Any]) -> None:
    """The way from samples to a result is a worker's: four tokens for a second."""
    engine = open_engine(toy[0])
    try:
        noise = np.random.default_rng(0).normal(0, 3000, 48_000).astype(np.int16)
        (result,) = engine.decode([AsrItem("a", noise, True, AsrOptions("en"))])
    finally:
        engine.close()
    assert len(result.segments[0].tokens) == 12
    assert result.text


def test_a_failing_peer_is_reported_and_the_run_continues() -> None:
    def broken() -> None:
        raise RuntimeError("no kernel | for this\nand a page more")

    ours, (first, second) = compare(lambda: 1, [broken, lambda: 2], torch.device("cpu"), 2)
    assert isinstance(ours, RunTimes)
    assert first == FailedCall("RuntimeError no kernel / for this")
    assert isinstance(second, RunTimes)


def test_computed_floors_equal_the_published_ones() -> None:
    """The 7.0 ms of docs/performance.md: 2.27 TFLOP a window, 316 MB a step, 31.7 MB a row."""
    turbo = SHAPES["turbo"]
    assert encoder_flop(turbo, 3000) == pytest.approx(2.31e12, rel=0.03)
    weights = step_bytes(turbo, 0, 1500, 0, 2)
    assert weights == pytest.approx(316e6, rel=0.02)
    assert step_bytes(turbo, 1, 1500, 0, 2) - weights == pytest.approx(31e6, rel=0.04)
    least = floor_ms(turbo, H200, windows=1, beams=1, frames=3000, tokens=50, bytes_=2)
    assert least == pytest.approx(7.0, rel=0.03)
