"""Timers that were set on a satellite are shown on it, also after it was away."""

import pytest

from bench.client.satellite import RAW, Satellite
from pipeline.tools.skills import Timers
from tests.devices.esphome.servers import Scene, against
from tests.pipeline.fakes import LoopClock

pytestmark = pytest.mark.live

STARTED, UPDATED, CANCELLED = 0, 1, 2


class Silent:
    """An announcer that reaches nobody."""

    async def announce(self, conversation_id: str, text: str) -> bool:
        return False


def told(satellite: Satellite) -> list[tuple[int, str, int, int, bool]]:
    """Returns of each event: type, name, whole time and time left in seconds, whether it runs."""
    return [
        (one.event_type, one.name, one.total_seconds, one.seconds_left, one.is_active)
        for one in satellite.timers
    ]


def test_a_timer_is_shown_changed_and_removed() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        timers = Timers(scene.home, LoopClock(), Silent())
        await satellite.subscribed()
        timers.start("dev_2", "en", 60, "of another device")
        tea = timers.start("dev_1", "en", 180, "tea")
        await satellite.until(lambda: len(satellite.timers) == 1)
        tea = timers.pause(tea)
        await satellite.until(lambda: len(satellite.timers) == 2)
        satellite.connections[0].cut()
        await satellite.until(lambda: len(satellite.timers) == 3)
        timers.cancel(tea)
        await satellite.until(lambda: len(satellite.timers) == 4)
        assert told(satellite) == [
            (STARTED, "tea", 180, 180, True),
            (UPDATED, "tea", 180, 180, False),
            (STARTED, "tea", 180, 180, False),
            (CANCELLED, "tea", 180, 180, False),
        ]

    against(act)


def test_a_satellite_without_timers_is_told_nothing() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        timers = Timers(scene.home, LoopClock(), Silent())
        timers.start("dev_1", "en", 180, "tea")
        await satellite.subscribed()
        await satellite.turn(1000)
        assert satellite.timers == []

    against(act, Scene(Satellite(features=RAW)))
