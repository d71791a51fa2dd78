"""The costs that the scheduler learns from calls, and the decisions based on them."""

from collections import Counter
from enum import IntEnum

import pytest

from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from serving.scheduling.cost_model import MARGINAL_DECAY, BatchCostModel

FINAL, SPECULATIVE, PARTIAL, BATCH = DecodePriority


def measured(extra: float, item_s: float = 0.1) -> BatchCostModel:
    """Returns a model after calls where each further item costs this share of a lone one."""
    costs = BatchCostModel(ASR_SCHEDULING.rules)
    for priority in DecodePriority:
        for _ in range(20):
            costs.observe([priority], item_s)
            costs.observe([priority] * 4, item_s * (1 + 3 * extra))
    return costs


@pytest.mark.parametrize(
    ("extra", "finals", "batch", "joiners"),
    [
        (0.0, 8, 8, 8),
        (0.05, 8, 8, 5),
        (0.1, 8, 6, 2),
        (0.2, 8, 3, 1),
        (0.4, 8, 2, 0),
        (0.6, 1, 1, 0),
        (1.0, 1, 1, 0),
    ],
)
def test_batch_sizes_follow_from_the_cost_of_further_items(
    extra: float, finals: int, batch: int, joiners: int
) -> None:
    costs = measured(extra - 1e-9 if extra else extra)
    sizes = (costs.batch_size(FINAL, 8), costs.batch_size(BATCH, 8), costs.max_joiners(8))
    assert sizes == (finals, batch, joiners)


def test_unknown_costs_are_measured_first() -> None:
    costs = BatchCostModel(ASR_SCHEDULING.rules)
    assert (costs.batch_size(FINAL, 8), costs.batch_size(BATCH, 8)) == (1, 1)
    assert costs.queue_s(Counter({FINAL: 100}), 8) == 0
    costs.observe([FINAL], 0.1)
    costs.observe([BATCH], 0.2)
    assert (costs.batch_size(FINAL, 8), costs.batch_size(BATCH, 8)) == (8, 2)
    assert costs.batch_size(BATCH, 1) == 1


def test_the_wait_of_a_queue_is_that_of_its_calls() -> None:
    waiting: Counter[IntEnum] = Counter({FINAL: 9, BATCH: 2})
    assert measured(0.0).queue_s(waiting, 8) == pytest.approx(0.1 * 3)
    assert measured(1.0).queue_s(waiting, 8) == pytest.approx(0.1 * 11)


def test_a_lone_item_has_a_cost_per_priority() -> None:
    costs = BatchCostModel(ASR_SCHEDULING.rules)
    costs.observe([BATCH], 2.0)
    costs.observe([PARTIAL], 0.05)
    assert costs.call_s([PARTIAL]) == pytest.approx(0.05)
    assert costs.call_s([FINAL]) == pytest.approx(2.0)  # unknown: the highest known cost
    for _ in range(50):
        costs.observe([PARTIAL], 0.1)
    assert costs.call_s([PARTIAL]) == pytest.approx(0.1, rel=0.01)


def test_the_first_call_does_not_count_after_the_second() -> None:
    costs = BatchCostModel(ASR_SCHEDULING.rules)
    costs.observe([FINAL], 3.0)
    assert costs.call_s([FINAL]) == pytest.approx(3.0)
    costs.observe([FINAL], 0.1)
    assert costs.call_s([FINAL]) == pytest.approx(0.1)
    costs.observe([FINAL], 0.6)
    assert costs.call_s([FINAL]) == pytest.approx(0.2)


def test_larger_batches_are_tried_again_after_a_while() -> None:
    costs = measured(1.0)
    tries = 0
    while costs.batch_size(FINAL, 8) == 1:
        costs.decay()
        tries += 1
    assert tries == 69
    assert MARGINAL_DECAY**tries <= 0.5
