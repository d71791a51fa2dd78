"""Wrong keys: how long their responses are delayed, and for which addresses."""

import asyncio
import logging
from collections import Counter

import pytest

from core.errors import Unauthorized
from server.http.key_attempts import (
    FREE_ATTEMPTS,
    MAX_ADDRESSES,
    MAX_WAIT_S,
    RESET_AFTER_S,
    KeyAttemptLimiter,
)
from tests.loop import run_virtual

HERE, THERE = "192.0.2.7", "192.0.2.8"


def waits(keys: KeyAttemptLimiter, remote: str, count: int, now: float = 0.0) -> list[float]:
    return [keys.count_wrong_key(remote, now) for _ in range(count)]


def test_after_a_few_wrong_keys_the_delay_grows() -> None:
    keys = KeyAttemptLimiter()
    assert waits(keys, HERE, FREE_ATTEMPTS) == [0.0] * FREE_ATTEMPTS
    assert waits(keys, HERE, 6) == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert waits(keys, HERE, 2000)[-1] == MAX_WAIT_S


def test_each_address_is_counted_separately() -> None:
    keys = KeyAttemptLimiter()
    waits(keys, HERE, FREE_ATTEMPTS + 5)
    assert waits(keys, THERE, 1) == [0.0]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("192.0.2.7", "::ffff:192.0.2.7", True),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::1", True),
    ],
)
def test_an_ipv6_network_counts_as_one_address(one: str, other: str, is_same: bool) -> None:
    keys = KeyAttemptLimiter()
    waits(keys, one, FREE_ATTEMPTS)
    assert (keys.count_wrong_key(other, 0.0) > 0) is is_same


def test_a_quiet_address_is_forgotten() -> None:
    keys = KeyAttemptLimiter()
    waits(keys, HERE, FREE_ATTEMPTS + 5)
    assert keys.count_wrong_key(HERE, RESET_AFTER_S) == MAX_WAIT_S
    assert keys.count_wrong_key(HERE, 2 * RESET_AFTER_S + 1) == 0.0


def test_the_number_of_remembered_addresses_is_limited() -> None:
    keys = KeyAttemptLimiter()
    for number in range(MAX_ADDRESSES + 100):
        keys.count_wrong_key(f"10.1.{number // 256}.{number % 256}", 0.0)
    assert len(keys._attempts) == MAX_ADDRESSES


def test_every_wrong_key_is_delayed_however_many_wait() -> None:
    """Otherwise a flood of guesses would be answered as fast as it arrives."""
    waited: Counter[float] = Counter()

    async def guess(keys: KeyAttemptLimiter) -> None:
        began = asyncio.get_running_loop().time()
        with pytest.raises(Unauthorized) as caught:
            await keys.slow_down(HERE)
        assert caught.value.code == "too_many_wrong_keys"
        waited[asyncio.get_running_loop().time() - began] += 1

    async def main() -> None:
        keys = KeyAttemptLimiter()
        waits(keys, HERE, FREE_ATTEMPTS + 10)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(1100):
                tasks.create_task(guess(keys))

    assert run_virtual(main()) == MAX_WAIT_S
    assert waited == {MAX_WAIT_S: 1100}


def test_wrong_keys_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    waits(KeyAttemptLimiter(), HERE, FREE_ATTEMPTS + 50)
    (line,) = caplog.messages
    assert HERE in line
