"""Clients that send in real time never wait; those that send much at once yield to other tasks."""

import asyncio
from collections.abc import Sequence

import pytest

from signaling.realtime.event_connection import (
    PAUSE_S,
    SAMPLES_PER_EVENT,
    SAMPLES_PER_STEP,
    EventLoopShare,
)


def turns_of_others(comes: Sequence[tuple[float, int]], takes_s: float = 0.0001) -> int:
    """Returns the turns that another task gets during one client's events (time of arrival,
    samples), each of which takes `takes_s`."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def work() -> None:
        beside = asyncio.get_running_loop().create_task(others())
        mine = EventLoopShare()
        for now, samples in comes:
            mine.begin_event(now)
            if mine.is_share_used(samples):
                await asyncio.sleep(0)
            mine.end_event(now + takes_s)
        beside.cancel()

    asyncio.run(work())
    return turns


@pytest.mark.parametrize("ptime_s", [0.01, 0.02, 0.06, 0.1])
def test_a_client_that_sends_in_real_time_never_yields(ptime_s: float) -> None:
    samples = SAMPLES_PER_EVENT + round(ptime_s * 16_000)
    assert turns_of_others([(10 + n * ptime_s, samples) for n in range(100)]) == 0


@pytest.mark.parametrize("takes_s", [0.00005, 0.0015, 0.02])
@pytest.mark.parametrize("pauses_s", [0.00001, PAUSE_S / 2])
def test_a_flood_yields_to_other_tasks_however_long_its_events_take(
    takes_s: float, pauses_s: float
) -> None:
    flood = [(10 + n * (takes_s + pauses_s), SAMPLES_PER_EVENT) for n in range(801)]
    assert turns_of_others(flood, takes_s) >= 99


def test_long_audio_yields_at_each_slice() -> None:
    assert turns_of_others([(10, SAMPLES_PER_STEP)] * 300) >= 298
