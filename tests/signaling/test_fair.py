"""Who sends in real time pays for no turn of others; who sends all at once leaves them theirs."""

import asyncio
from collections.abc import Sequence

import pytest

from signaling.realtime.fair import SAMPLES_PER_EVENT, SAMPLES_PER_TURN, TURN_S, Turns


def turns_of_others(comes: Sequence[tuple[float, int]]) -> int:
    """While one client does work: (when it came, samples)."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def work() -> None:
        beside = asyncio.get_running_loop().create_task(others())
        mine = Turns()
        for now, samples in comes:
            await mine.before(samples, now)
        beside.cancel()

    asyncio.run(work())
    return turns


@pytest.mark.parametrize("ptime_s", [0.02, 0.06, 0.1])
def test_who_sends_in_real_time_pays_for_no_turn(ptime_s: float) -> None:
    samples = SAMPLES_PER_EVENT + round(ptime_s * 16_000)
    assert turns_of_others([(10 + n * ptime_s, samples) for n in range(100)]) == 0


def test_a_flood_leaves_others_their_turn() -> None:
    at_once = turns_of_others([(10, SAMPLES_PER_EVENT)] * 801)
    assert at_once >= 99
    fast = [(10 + n * TURN_S / 100, SAMPLES_PER_EVENT) for n in range(801)]
    assert turns_of_others(fast) >= 80


def test_long_audio_leaves_others_a_turn_at_each_slice() -> None:
    assert turns_of_others([(10, SAMPLES_PER_TURN)] * 300) >= 298
