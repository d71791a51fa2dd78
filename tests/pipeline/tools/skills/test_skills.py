"""Tools over the demo home: what they do, and how they answer wrong calls."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.ports import ToolContext, ToolOutcome
from pipeline.tools.home import Home, default_home
from pipeline.tools.skills import ClockTools, HomeTools, ListTools

ENGLISH = ToolContext("conv_1", "en")


def call(
    name: str, arguments: dict[str, Any], home: Home | None = None, language: str = "en"
) -> ToolOutcome:
    tools = HomeTools(home or Home(default_home()))
    return asyncio.run(tools.call(name, arguments, ToolContext("conv_1", language)))


DONE: list[tuple[str, dict[str, Any], str, str, dict[str, Any]]] = [
    ("HassTurnOn", {"name": "kitchen lights"}, "light.kitchen", "on", {}),
    ("HassTurnOn", {"name": "Kitchen Lights"}, "light.kitchen", "on", {}),
    ("HassTurnOn", {"name": "light.kitchen"}, "light.kitchen", "on", {}),
    ("HassTurnOn", {"area": "kitchen", "domain": "light"}, "light.kitchen", "on", {}),
    ("HassTurnOn", {"domain": "light"}, "light.garden", "on", {}),
    ("HassTurnOn", {"name": "garage door"}, "cover.garage_door", "open", {"position": 100}),
    (
        "HassTurnOn",
        {"area": "garage", "device_class": "door", "domain": "cover"},
        "cover.garage_door",
        "open",
        {"position": 100},
    ),
    (
        "HassTurnOff",
        {"name": "garage door", "domain": "lock"},
        "lock.garage_door",
        "unlocked",
        {},
    ),
    (
        "HassLightSet",
        {"area": "office", "brightness": 40, "color": "red"},
        "light.office",
        "on",
        {"brightness": 40, "color": "red"},
    ),
    ("HassLightSet", {"name": "office lights", "brightness": 0}, "light.office", "off", {}),
    (
        "HassSetPosition",
        {"name": "kitchen blinds", "position": 30},
        "cover.kitchen_blinds",
        "open",
        {"position": 30},
    ),
    (
        "HassClimateSetTemperature",
        {"area": "kitchen", "temperature": 21.5},
        "climate.kitchen",
        "heat",
        {"target_temperature": 21.5},
    ),
    (
        "HassFanSetSpeed",
        {"name": "office fan", "percentage": 70},
        "fan.office",
        "on",
        {"speed": 70},
    ),
    ("HassMediaUnpause", {"area": "office"}, "media_player.office_speaker", "playing", {}),
    (
        "HassSetVolume",
        {"name": "television", "volume_level": 15},
        "media_player.television",
        "paused",
        {"volume": 15},
    ),
    (
        "HassSetVolumeRelative",
        {"name": "television", "volume_step": "up"},
        "media_player.television",
        "paused",
        {"volume": 50},
    ),
]


@pytest.mark.parametrize(("tool", "arguments", "entity", "state", "attributes"), DONE)
def test_a_tool_changes_the_home(
    tool: str, arguments: dict[str, Any], entity: str, state: str, attributes: dict[str, Any]
) -> None:
    home = Home(default_home())
    outcome = call(tool, arguments, home)
    assert outcome.error is None
    assert entity in [target["id"] for target in outcome.data["targets"]]
    now = home.entity(entity)
    assert now.state == state
    assert attributes.items() <= now.attributes.items()


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("HassTurnOn", {}, "invalid_arguments"),
        ("HassTurnOn", {"name": 3}, "invalid_arguments"),
        ("HassTurnOn", {"name": "x" * 1000}, "invalid_arguments"),
        ("HassTurnOn", {"name": "flux capacitor"}, "no_such_device"),
        ("HassTurnOn", {"area": "attic", "device_class": "curtain"}, "no_such_device"),
        ("HassTurnOn", {"area": "moon", "domain": "light"}, "no_such_area"),
        ("HassTurnOn", {"device_class": "window"}, "ambiguous"),
        ("HassLightSet", {"name": "kitchen lights"}, "invalid_arguments"),
        ("HassLightSet", {"name": "kitchen lights", "brightness": 101}, "out_of_range"),
        ("HassLightSet", {"name": "kitchen lights", "brightness": True}, "invalid_arguments"),
        ("HassLightSet", {"name": "kitchen lights", "color": "ultraviolet"}, "invalid_arguments"),
        ("HassSetPosition", {"name": "kitchen blinds"}, "invalid_arguments"),
        ("HassClimateSetTemperature", {"area": "kitchen", "temperature": 90}, "out_of_range"),
        ("HassSetVolumeRelative", {"name": "tv", "volume_step": "sideways"}, "invalid_arguments"),
        ("HassMediaPause", {}, "nothing_playing"),
        ("HassMediaNext", {"area": "office"}, "nothing_playing"),
        ("HassMediaPause", {"name": "kitchen lights"}, "no_such_device"),
        ("HassSelfDestruct", {}, "unknown_tool"),
    ],
)
def test_a_wrong_call_changes_nothing_and_gives_the_reason(
    tool: str, arguments: dict[str, Any], error: str
) -> None:
    home = Home(default_home())
    outcome = call(tool, arguments, home)
    assert outcome.error == error
    assert home.revision == 1


def test_names_of_the_language_are_understood_and_reported() -> None:
    outcome = call("HassTurnOn", {"name": "küchenlicht"}, language="de")
    assert outcome.data["targets"][0]["name"] == "Küchenlicht"
    assert outcome.data["targets"][0]["area_name"] == "Küche"
    assert call("HassTurnOn", {"name": "küchenlicht"}, language="fr").error == "no_such_device"


def test_a_question_about_a_state_gives_matching_and_other_devices() -> None:
    home = Home(default_home())
    home.update("light.attic", "on")
    outcome = call("HassGetState", {"domain": "light", "state": "on"}, home)
    assert [entity["id"] for entity in outcome.data["matched"]] == ["light.attic"]
    assert len(outcome.data["unmatched"]) == 13
    windows = call("HassGetState", {"domain": "cover", "device_class": "window", "state": "open"})
    assert windows.error is None
    assert len(windows.data["unmatched"]) == 6


def test_the_schemas_list_the_names_of_the_language() -> None:
    specs = {spec.name: spec for spec in HomeTools(Home(default_home())).tools(ENGLISH)}
    properties = specs["HassSetPosition"].parameters["properties"]
    assert [group["title"] for group in properties["name"]["anyOf"]] == ["cover"]
    assert "garage door" in properties["name"]["anyOf"][0]["enum"]
    assert "living room" in properties["area"]["enum"]
    german = HomeTools(Home(default_home())).tools(ToolContext("conv_1", "de"))
    assert "Küche" in german[0].parameters["properties"]["area"]["enum"]
    assert {spec.name for spec in specs.values() if spec.is_read_only} == {
        "HassGetState",
        "HassClimateGetTemperature",
    }


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just("kitchen")
)
TOOLS = [spec.name for spec in HomeTools(Home(default_home())).tools(ENGLISH)]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(TOOLS),
    st.dictionaries(
        st.sampled_from(["name", "area", "domain", "state", "brightness", "volume_step"]),
        ANYTHING,
    ),
)
def test_no_arguments_break_a_tool(tool: str, arguments: dict[str, Any]) -> None:
    outcome = call(tool, arguments)
    assert outcome.error is None or outcome.data["message"]


def test_the_clock_gives_time_and_date() -> None:
    class Fixed:
        def now(self) -> float:
            return 0.0

        def wall(self) -> datetime:
            return datetime(2026, 11, 21, 7, 5, tzinfo=UTC)

    tools = ClockTools(Fixed())
    told = asyncio.run(tools.call("HassGetCurrentTime", {}, ENGLISH))
    assert told.data == {"time": "07:05", "hour": 7, "minute": 5}
    told = asyncio.run(tools.call("HassGetCurrentDate", {}, ENGLISH))
    assert told.data == {"date": "2026-11-21", "weekday": 6}


def test_the_shopping_list_is_filled_read_and_ticked_off() -> None:
    async def main() -> list[ToolOutcome]:
        tools = ListTools(Home(default_home()))
        steps: list[tuple[str, dict[str, Any]]] = [
            ("HassShoppingListAddItem", {"item": "milk"}),
            ("HassShoppingListAddItem", {"item": "bread"}),
            ("HassShoppingListCompleteItem", {"item": "Milk"}),
            ("HassShoppingListGetItems", {}),
            ("HassShoppingListCompleteItem", {"item": "soap"}),
            ("HassShoppingListAddItem", {"item": "  "}),
        ]
        return [await tools.call(name, arguments, ENGLISH) for name, arguments in steps]

    outcomes = asyncio.run(main())
    assert [outcome.error for outcome in outcomes] == [
        None,
        None,
        None,
        None,
        "no_such_item",
        "invalid_arguments",
    ]
    assert outcomes[3].data == {"items": ["bread"]}
