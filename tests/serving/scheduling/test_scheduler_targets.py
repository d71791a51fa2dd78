"""What the scheduler is for, in virtual time: the figures that `bench.measurements.scheduler`
takes in real."""

import pytest

from bench.server.stub_engines.scheduled_asr import (
    CALL_S,
    MAX_BATCH,
    SharingResult,
    locked,
    scheduled,
)
from tests.loop import run_virtual

REQUESTS = 400


def test_eight_at_once_wait_at_most_twice_as_long_and_throughput_is_four_locks() -> None:
    rounds: list[SharingResult] = []

    async def main() -> None:
        rounds.append(await locked(REQUESTS))
        rounds.append(await scheduled(REQUESTS))

    run_virtual(main())
    lock, ours = rounds
    assert ours.alone_ms == pytest.approx(lock.alone_ms)  # nobody is delayed for company
    assert ours.together_p95_ms <= 2 * ours.alone_ms
    assert lock.together_p95_ms > 7 * lock.alone_ms
    assert ours.per_s >= 4 * lock.per_s
    assert ours.per_s > 0.95 * MAX_BATCH / CALL_S  # the batches are full
