"""Synthetic backchannels, interruptions and noises during an answer, with the engines that need no
download. Each decode takes 50 ms of virtual time, so the result does not depend on the machine.
"""

from itertools import count

import pytest

from bench.measurements.interruptions import (
    InProcessEngines,
    OverlapResult,
    VirtualTimeRecogniser,
    classify,
    confusion,
    right,
)
from bench.measurements.material.overlap_clips import OverlapKind, overlaps
from engines.registry import load
from pipeline.playout.interruption import DECIDE_MS
from pipeline.user_turn.speech_detection.endpointing import INTERRUPT_MS
from tests.speech import say

pytestmark = pytest.mark.live

DECODE_S = 0.05


@pytest.fixture(scope="module")
def found() -> list[OverlapResult]:
    ticks = count(0, DECODE_S)
    recogniser = VirtualTimeRecogniser(load("asr", "pocketsphinx", {}), lambda: next(ticks))
    engines = InProcessEngines(load("vad", "gated", {}), recogniser, load("llm", "intents", {}))
    results = [classify(one, engines) for one in overlaps(say, ["en-us"])]
    print(*confusion(results), sep="\n")
    return results


@pytest.mark.parametrize(
    ("kind", "least"),
    [("backchannel", 8 / 9), ("interruption", 1.0), ("noise", 7 / 8)],
)
def test_an_answer_continues_or_ends_as_expected(
    kind: OverlapKind, least: float, found: list[OverlapResult]
) -> None:
    wrong = [one for one in found if one.overlap.kind == kind]
    assert right(found, kind) >= least, wrong


def test_an_answer_resumes_in_time(found: list[OverlapResult]) -> None:
    pauses_ms = [one.pause_ms for one in found if one.outcome == "resumed"]
    assert pauses_ms
    assert min(pauses_ms) > 0, "it was paused"
    assert max(pauses_ms) <= DECIDE_MS + 20, "a frame's worth"


def test_a_short_noise_does_not_pause_an_answer(found: list[OverlapResult]) -> None:
    slam = next(one for one in found if one.overlap.name == "door slam")
    assert (slam.outcome, slam.pause_ms) == ("not noticed", 0), INTERRUPT_MS
