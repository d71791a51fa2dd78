"""Signals: the first one drains, a second one stops at once, a repeated one is ignored."""

import asyncio
import os
import signal

import pytest

from server.runtime import lifecycle as module
from server.runtime.lifecycle import Lifecycle, signals


async def _end_by(*numbers: signal.Signals) -> Lifecycle:
    """Sends these signals to a server whose drain would never end."""
    lifecycle = Lifecycle()
    lifecycle.watch(lambda: True)
    with signals(lifecycle):
        for number in numbers:
            os.kill(os.getpid(), number)
        await lifecycle.stopped()
        if len(numbers) > 1:
            await asyncio.sleep(60)  # until the second signal cancels it
    return lifecycle


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_drains(number: signal.Signals) -> None:
    assert asyncio.run(_end_by(number)).state == "draining"


def test_the_second_signal_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAME_SIGNAL_S", -1.0)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(_end_by(signal.SIGTERM, signal.SIGINT))


def test_the_previous_signal_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    asyncio.run(_end_by(signal.SIGTERM))
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_during_a_restart_ends_the_server() -> None:
    lifecycle = Lifecycle()
    lifecycle.restart()
    lifecycle.restart()  # a second click
    assert (lifecycle.state, lifecycle.is_restart) == ("draining", True)
    lifecycle.stop()
    assert not lifecycle.is_restart
    lifecycle.restart()
    assert not lifecycle.is_restart
