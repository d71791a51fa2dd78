import random
from itertools import pairwise

import pytest

from media.webrtc.rtp.jitter_buffer import MAX_DROPOUT, JitterBuffer, JitterFlow, JitterStats


def play(order: list[int], depth: int) -> tuple[list[int], int, JitterBuffer[int]]:
    """Pushes packets in this order; returns the output and the longest delay in packets."""
    buffer = JitterBuffer[int](depth)
    out: list[int] = []
    delay = 0
    for n in order:
        due = buffer.push(n & 0xFFFF, n)
        out += due
        delay = max([delay, *(n - one for one in due)])
        assert len(buffer) <= depth
    return out, delay, buffer


@pytest.mark.parametrize("depth", [0, 1, 2, 4])
@pytest.mark.parametrize("start", [0, 65500])
def test_without_loss_no_packet_waits(depth: int, start: int) -> None:
    order = [start + n for n in range(200)]
    buffer = JitterBuffer[int](depth)
    for n in order:
        assert buffer.push(n & 0xFFFF, n) == [n]


@pytest.mark.parametrize("depth", [0, 1, 2, 4])
@pytest.mark.parametrize("lost", [[50], [50, 51], [50, 80], list(range(20, 60))])
@pytest.mark.parametrize("start", [0, 65500])
def test_loss_costs_only_the_lost_packets_and_a_short_delay(
    depth: int, lost: list[int], start: int
) -> None:
    order = [start + n for n in range(200) if n not in lost]
    out, delay, buffer = play(order, depth)
    assert out == order
    assert delay == depth
    assert buffer.push(order[-1] + 1 & 0xFFFF, -1) == [-1], "and then nothing waits again"
    assert buffer.stats == JitterStats(lost=len(lost))


def test_reordering_within_the_depth_is_repaired() -> None:
    order = [0, 2, 1, 3, 5, 4, 6, 7, 8]
    out, _, buffer = play(order, 1)
    assert out == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert buffer.stats == JitterStats(reordered=2)
    out, _, buffer = play(order, 0)
    assert out == [0, 2, 3, 5, 6, 7, 8]
    assert buffer.stats == JitterStats(lost=2, late=2)


def test_packets_behind_a_gap_are_released_when_the_sender_pauses() -> None:
    buffer = JitterBuffer[int](2)
    assert [buffer.push(n, n) for n in (0, 2, 3)] == [[0], [], []]
    assert buffer.drain() == [2, 3]
    assert buffer.push(4, 4) == [4]


def test_a_repeated_packet_is_released_once() -> None:
    out, _, buffer = play([0, 0, 1, 1, 2, 3, 2], 1)
    assert out == [0, 1, 2, 3]
    assert buffer.stats == JitterStats(late=3)


@pytest.mark.parametrize("jump", [-30_000, -101, MAX_DROPOUT + 200, 32_000])
def test_a_restarted_sender_is_followed_from_its_second_packet(jump: int) -> None:
    after = [1000 + jump + n for n in range(50)]
    out, delay, buffer = play([*range(950, 1001), *after], 2)
    assert out[-49:] == after[1:]
    assert delay == 0
    assert buffer.stats == JitterStats(late=1, resyncs=1)


def test_one_stray_packet_does_not_count_as_a_restart() -> None:
    out, _, buffer = play([100, 101, 102, 40_000, 103, 104, 105], 1)
    assert out == [100, 101, 102, 103, 104, 105]
    assert buffer.stats == JitterStats(late=1)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_random_loss_and_reordering_never_stall_the_buffer(depth: int) -> None:
    chance = random.Random(depth)
    order = [n for n in range(5000) if chance.random() > 0.1]
    order.sort(key=lambda n: n + chance.choice([0, 0, 0, 1.5, 3.5]))
    order += order[-1:]
    out, _, buffer = play(order, depth)
    assert out == sorted(set(out))
    assert len(out) + buffer.stats.late + len(buffer) == len(order)
    assert max(b - a for a, b in pairwise(out)) < 20


def test_released_and_held_packets_are_counted() -> None:
    _, _, calm = play(list(range(100)), 1)
    assert calm.flow == JitterFlow(released=100, buffered=0)
    _, _, lossy = play([n for n in range(100) if n not in (20, 60)], 1)
    assert lossy.flow == JitterFlow(released=98, buffered=2), "one packet waited after each gap"
