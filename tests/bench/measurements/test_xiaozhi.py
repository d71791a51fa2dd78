"""Measurement of xiaozhi boards: its table, and a short run."""

import asyncio
import subprocess
import sys

import numpy as np
import pytest

from bench.capacity.cpu_affinity import CpuAssignment, cores
from bench.measurements.xiaozhi import BoardTurn, TurnTimes, XiaozhiPlan, clip_of, table
from bench.tools.utterance_audio import make_utterance
from core.audio import ASR_RATE_HZ
from core.errors import RequestError
from tests.conftest import require
from tests.shared import ROOT

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("talkers")]

PLAN = XiaozhiPlan(parts=("board", "crowd"), rounds=1, turns=1, crowd_turns=1, idle=2, talking=2)

RUN_S = 120


def times(*packet_ms: float) -> TurnTimes:
    found = TurnTimes()
    found.add([BoardTurn(ms, ms + 10) for ms in packet_ms])
    return found


def test_the_table_compares_boards_in_the_same_mode() -> None:
    browser = TurnTimes()
    browser.audible.extend([300.0, 310.0])
    output = table({"browser": browser, "board": times(290, 300), "crowd": times(580, 600)}, PLAN)
    lines = output.splitlines()
    assert lines[2] == "| browser (WebRTC), alone | - | 305 / 310 | 2 |"
    assert lines[3] == "| board, alone | 295 / 300 | 305 / 310 | 2 |"
    assert "2 talking beside 2 idle" in lines[4]
    assert "p50: +0 ms" in output
    assert "p95: 2.00 and 1.97 (first packet, audible)" in output


def test_a_clip_ends_when_its_last_sample_is_sent() -> None:
    time_s = np.arange(24_000) / 24_000
    tone = (9000 * np.sin(2 * np.pi * 440 * time_s)).astype(np.int16)
    clip = clip_of(make_utterance("x", tone))
    assert clip.end_s == pytest.approx(1.0, abs=0.02)
    assert len(clip.packets) == pytest.approx((1.0 + 0.7) * ASR_RATE_HZ / 960, abs=1)


def cores_or_none() -> CpuAssignment | None:
    try:
        return cores()
    except RequestError:
        return None


def test_the_bench_runs_with_its_own_server() -> None:
    """Runs each part once, with few boards."""
    require(cores_or_none(), "a second processor core")
    few = ("--rounds", "1", "--turns", "1", "--crowd-turns", "1", "--idle", "2", "--talking", "2")

    async def bench() -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "bench.measurements.xiaozhi", *few, "--stubs", "1,1,1"),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        async with asyncio.timeout(RUN_S):
            output, _ = await process.communicate()
        return process.returncode, output.decode()

    code, output = asyncio.run(bench())
    assert code == 0, output
    assert "among many / alone, p95" in output
    assert "board - browser" in output
