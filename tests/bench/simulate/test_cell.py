"""A simulated cell: the same seed gives the same result, and every turn has one."""

from dataclasses import replace

import pytest

from bench.simulate.cell import CellLoad, run_cell
from bench.simulate.costs import GPU_COSTS, read_costs
from bench.simulate.site import SitePlan

PLAN = SitePlan(gateways=2, recognisers=1, llm_gpus=1, tts_gpus=1)
COSTS = read_costs(GPU_COSTS)


def test_the_same_seed_gives_the_same_turns() -> None:
    load = CellLoad(calls=40, turns_per_s=10, seconds=10)
    first, second = (run_cell(PLAN, COSTS, load, seed=3) for _ in range(2))
    assert list(first.turns) == list(second.turns)
    assert list(first.turns) != list(run_cell(PLAN, COSTS, load, seed=4).turns)


@pytest.mark.parametrize("turns_per_s", [5, 200])
def test_every_turn_is_answered_refused_or_failed(turns_per_s: float) -> None:
    load = CellLoad(calls=40, turns_per_s=turns_per_s, seconds=5)
    result = run_cell(PLAN, COSTS, load)
    assert result.begun == len(result.turns) > 0
    assert {turn.outcome for turn in result.turns} <= {"answered", "refused", "failed"}


def test_an_idle_cell_answers_in_the_sum_of_its_costs() -> None:
    costs = replace(COSTS, speech_spread=0, asr_spread=0, endpoint_spread=0, llm_growth=0)
    result = run_cell(PLAN, costs, CellLoad(calls=1, seconds=20))
    words_ms = costs.notice_ms + costs.asr_fixed_ms + costs.asr_ms_per_s * costs.speech_s
    models_ms = costs.turn_ms / (1 - costs.call_ms_per_s / 2000) + costs.llm_first_ms + costs.tts_ms
    expected_ms = max(costs.endpoint_ms, words_ms + models_ms) + costs.out_ms
    # One in three may wait for a partial that is being decoded.
    assert result.percentile_ms(50) == pytest.approx(expected_ms, rel=0.03)
    assert result.lost_share == 0


def test_a_lost_recogniser_costs_time_and_no_turns() -> None:
    plan = replace(PLAN, recognisers=2)
    load = CellLoad(calls=40, turns_per_s=10, seconds=15, lost_recognisers=1, lost_s=5)
    assert run_cell(plan, COSTS, load).lost_share == 0


def test_without_any_recogniser_turns_wait_until_one_is_back() -> None:
    load = CellLoad(calls=10, turns_per_s=2, seconds=15, lost_recognisers=1, lost_s=5)
    result = run_cell(PLAN, COSTS, load)
    assert result.begun == len(result.turns)
    assert result.percentile_ms(99) > 2000


def test_too_many_turns_for_the_cores_make_everybody_wait() -> None:
    plan = SitePlan(gateways=1, recognisers=2, shared_cores=2)
    costs = replace(COSTS, asr_ms_per_s=40, llm_slots=0, llm_first_ms=20, tts_lanes=1)
    few, many = (run_cell(plan, costs, CellLoad(calls, seconds=20)) for calls in (2, 40))
    assert many.percentile_ms(95) > 1.5 * few.percentile_ms(95)
    assert many.use["cores"] > few.use["cores"]
