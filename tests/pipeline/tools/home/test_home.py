"""The demo home: its configuration, its changes and its watchers."""

import asyncio
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from core.errors import ConfigError
from pipeline.tools.home import Home, HomeConfig, HomeState, default_home
from pipeline.tools.home.home import MAX_LIST_ITEMS
from tests.loop import run_virtual

SMALL = {
    "areas": [{"id": "kitchen", "names": {"en": ["kitchen"], "de": ["Küche"]}}],
    "entities": [
        {
            "id": "light.kitchen",
            "area": "kitchen",
            "kind": "light",
            "names": {"en": ["kitchen lights"], "de": ["Küchenlicht"]},
        }
    ],
}


def small() -> Home:
    return Home(msgspec.convert(SMALL, HomeConfig))


def test_a_snapshot_has_the_documented_json() -> None:
    home = small()
    home.update("light.kitchen", "on", brightness=30)
    home.add_item("  oat   milk ")
    state = msgspec.json.decode(msgspec.json.encode(home.snapshot()))
    item = state["shopping_list"][0].pop("id")
    assert item.startswith("item_")
    assert state == {
        "revision": 3,
        "areas": [{"id": "kitchen", "name": "Kitchen"}],
        "entities": [
            {
                "id": "light.kitchen",
                "name": "Kitchen lights",
                "area": "kitchen",
                "kind": "light",
                "state": "on",
                "attributes": {"brightness": 30, "color": "white"},
                "device_class": "",
            }
        ],
        "shopping_list": [{"text": "oat milk", "done": False}],
        "timers": [],
        "reach": "here",
    }
    assert home.snapshot("de").entities[0].name == "Küchenlicht"


def test_the_bundled_home_has_names_in_eight_languages() -> None:
    config = default_home()
    assert len(config.areas) == 11
    named = [*(area.names for area in config.areas), *(one.names for one in config.entities)]
    for names in named:
        assert set(names) == {"en", "de", "fr", "es", "it", "nl", "pt", "zh"}
        assert all(names.values())
    Home(config).snapshot()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"areas": []}, "unknown area 'kitchen'"),
        ({"entities": [*SMALL["entities"], *SMALL["entities"]]}, "id used twice: light.kitchen"),
        ({"areas": [{"id": "kitchen", "names": {}}]}, "'kitchen' has no name"),
        ({"areas": [{"id": "kitchen", "names": {"en": [" "]}}]}, "empty or too long"),
        ({"areas": [{"id": str(i), "names": {"en": ["x"]}} for i in range(101)]}, "at most 100"),
    ],
)
def test_an_invalid_home_is_refused_with_its_mistake(
    change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises((ConfigError, msgspec.ValidationError), match=complaint):
        msgspec.convert({**SMALL, **change}, HomeConfig)


def test_a_state_that_a_kind_does_not_have_is_refused() -> None:
    entity = {**SMALL["entities"][0], "state": "ajar"}
    config = msgspec.convert({**SMALL, "entities": [entity]}, HomeConfig)
    with pytest.raises(ConfigError, match="a light is off or on"):
        Home(config)
    with pytest.raises(ValueError, match="light has no state 'ajar'"):
        small().update("light.kitchen", "ajar")


def test_only_changes_increase_the_revision() -> None:
    home = small()
    home.update("light.kitchen", "on")
    revision = home.revision
    home.update("light.kitchen", "on")
    assert home.revision == revision


def test_the_list_keeps_each_open_item_once_and_is_limited() -> None:
    home = small()
    assert home.add_item("Milk") == home.add_item("milk")
    for number in range(MAX_LIST_ITEMS - 1):
        assert home.add_item(f"thing {number}")
    assert home.add_item("one more") is None
    assert home.complete_item("THING 3") is not None
    assert home.add_item("one more") is not None
    assert len(home.snapshot().shopping_list) == MAX_LIST_ITEMS


def test_a_slow_watcher_gets_only_the_latest_state() -> None:
    async def main() -> None:
        home = small()
        async with aclosing(home.watch()) as states:
            first = await anext(states)
            assert first.entities[0].state == "off"
            for level in range(1, 50):
                home.update("light.kitchen", "on", brightness=level)
            assert (await anext(states)).entities[0].attributes["brightness"] == 49
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(_next(states))
                await asyncio.sleep(1)
                assert not waiting.done()
                home.update("light.kitchen", "off")
            assert waiting.result().entities[0].state == "off"

    assert run_virtual(main()) == 1


def test_each_watcher_sees_every_change_it_waits_for() -> None:
    async def main() -> None:
        home = small()
        async with asyncio.TaskGroup() as tasks:
            watchers = [tasks.create_task(_until_on(home)) for _ in range(3)]
            await asyncio.sleep(0.1)
            home.update("light.kitchen", "on")
        assert [task.result() for task in watchers] == [2, 2, 2]

    run_virtual(main())


async def _next(states: Any) -> HomeState:
    state: HomeState = await anext(states)
    return state


async def _until_on(home: Home) -> int:
    async with aclosing(home.watch()) as states:
        async for state in states:
            if state.entities[0].state == "on":
                return state.revision
    raise AssertionError("the home was never watched")
