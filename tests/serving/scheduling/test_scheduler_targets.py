"""The targets of the scheduler, in virtual time: `bench.measurements.scheduler` measures the same
figures in real time."""

import pytest

from bench.server.stub_engines.scheduled_asr import (
    CALL_S,
    MAX_BATCH,
    SharingResult,
    measure_lock,
    measure_scheduler,
)
from tests.loop import run_virtual

REQUESTS = 400


def test_eight_clients_wait_at_most_twice_as_long_with_four_times_the_throughput() -> None:
    rounds: list[SharingResult] = []

    async def main() -> None:
        rounds.append(await measure_lock(REQUESTS))
        rounds.append(await measure_scheduler(REQUESTS))

    run_virtual(main())
    lock, ours = rounds
    assert ours.alone_ms == pytest.approx(lock.alone_ms)  # no delay to fill a batch
    assert ours.together_p95_ms <= 2 * ours.alone_ms
    assert lock.together_p95_ms > 7 * lock.alone_ms
    assert ours.per_s >= 4 * lock.per_s
    assert ours.per_s > 0.95 * MAX_BATCH / CALL_S  # the batches are full
