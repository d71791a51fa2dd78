"""`python -m bench.gpu` runs from end to end without a GPU, and its arithmetic is right."""

import pytest

from bench.gpu.__main__ import main
from bench.gpu.clock import Floors
from bench.gpu.floor import encoder_flop, floor_ms, step_bytes
from bench.gpu.models import SHAPES

H200 = Floors(bytes_per_s=4.3e12, flop_per_s=790e12)


def test_every_part_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cpu", "--tiny"]) == 0
    told = capsys.readouterr().out
    for beams in (1, 5):
        assert f"| graphs, eager | {beams} | 1.0000 |" in told
        assert f"| ours, transformers | {beams} | 1.0000 |" in told
    assert told.count("|---|") >= 7


def test_floors_are_those_that_are_published() -> None:
    """docs/performance.md names 2.27 TFLOP per window, 316 MB a step and 31.7 MB a row, 7.0 ms."""
    turbo = SHAPES["turbo"]
    assert encoder_flop(turbo, 3000) == pytest.approx(2.31e12, rel=0.03)
    weights = step_bytes(turbo, 0, 1500, 0, 2)
    assert weights == pytest.approx(316e6, rel=0.02)
    assert step_bytes(turbo, 1, 1500, 0, 2) - weights == pytest.approx(31e6, rel=0.04)
    least = floor_ms(turbo, H200, windows=1, beams=1, frames=3000, tokens=50, bytes_=2)
    assert least == pytest.approx(7.0, rel=0.03)
