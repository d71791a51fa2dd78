"""Tools that may run before the user has finished speaking must change nothing."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from core.ports import ToolContext, ToolProvider, ToolSpec
from pipeline.tools.home import Home, default_home
from pipeline.tools.skills import ClockTools, HomeTools, ListTools, Timers, TimerTools
from tests.engines.llm.intents.text_conversation import RecordingAnnouncer
from tests.pipeline.fakes import ManualClock

CONTEXT = ToolContext("conv_1", "en")

READ_ONLY = {
    "HassClimateGetTemperature",
    "HassGetCurrentDate",
    "HassGetCurrentTime",
    "HassGetState",
    "HassShoppingListGetItems",
    "HassTimerStatus",
}

ARGUMENTS: tuple[Mapping[str, Any], ...] = (
    {},
    {"name": "kitchen lights"},
    {"area": "kitchen"},
    {"name": "kitchen lights", "state": "off"},
    {"domain": "cover", "state": "open"},
    {"name": "pizza"},
    {"item": "milk"},
)


class House:
    """A home with a list and a timer, and all of its state."""

    def __init__(self) -> None:
        self.home = Home(default_home())
        clock = ManualClock()
        self.timers = Timers(self.home, clock, RecordingAnnouncer())
        self.timers.start("conv_1", "en", 600, "pizza")
        self.home.add_item("milk")
        self.providers: tuple[ToolProvider, ...] = (
            HomeTools(self.home),
            ListTools(self.home),
            TimerTools(self.timers),
            ClockTools(clock),
        )

    def specs(self) -> list[tuple[ToolProvider, ToolSpec]]:
        return [(one, spec) for one in self.providers for spec in one.tools(CONTEXT)]

    def seen(self) -> tuple[bytes, str]:
        timers = [(t.name, self.timers.remaining_s(t), t.paused_s) for t in self._all_timers()]
        return msgspec.json.encode(self.home.snapshot()), repr(timers)

    def _all_timers(self) -> Any:
        return self.timers.of("conv_1")


def test_exactly_these_built_in_tools_are_read_only() -> None:
    assert {spec.name for _, spec in House().specs() if spec.is_read_only} == READ_ONLY


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_no_read_only_tool_changes_anything(arguments: Mapping[str, Any]) -> None:
    house = House()
    before = house.seen()
    for provider, spec in house.specs():
        if spec.is_read_only:
            asyncio.run(provider.call(spec.name, arguments, CONTEXT))
    assert house.seen() == before


def test_the_house_of_this_test_shows_changes() -> None:
    """Shows that the test above can fail."""
    house = House()
    before = house.seen()
    lights = {"name": "kitchen lights"}
    asyncio.run(house.providers[0].call("HassTurnOn", lights, CONTEXT))
    assert house.seen() != before
    before = house.seen()
    asyncio.run(house.providers[2].call("HassPauseTimer", {}, CONTEXT))
    assert house.seen() != before


def test_specs_are_the_same_object_until_something_changes() -> None:
    for provider in House().providers:
        assert provider.tools(CONTEXT) is provider.tools(ToolContext("conv_2", "en"))
