"""Controls of the home on a page: each acts on one id, and refuses what a click must not do."""

import asyncio

import pytest

from core.errors import Conflict, NotFound
from pipeline.tools.home import Home, default_home
from pipeline.tools.home.state import OnOff
from pipeline.tools.skills import HomeControls, Timers
from tests.loop import run_virtual
from tests.pipeline.fakes import LoopClock
from tests.pipeline.tools.skills.listener import Listener


def _controls(home: Home) -> HomeControls:
    return HomeControls(home, Timers(home, LoopClock(), Listener()))


def test_a_lamp_is_switched_and_keeps_its_brightness() -> None:
    home = Home(default_home())
    home.update("light.kitchen", brightness=40)
    asyncio.run(_controls(home).switch("light.kitchen", "on"))
    lamp = home.entity("light.kitchen")
    assert (lamp.state, lamp.attributes["brightness"]) == ("on", 40)


def test_a_device_of_a_mirrored_house_is_switched_there() -> None:
    home = Home(default_home())
    asked: list[tuple[str, str]] = []

    async def switch(entity_id: str, state: OnOff) -> None:
        asked.append((entity_id, state))

    controls = HomeControls(home, Timers(home, LoopClock(), Listener()), switch)
    asyncio.run(controls.switch("light.kitchen", "on"))
    assert asked == [("light.kitchen", "on")]
    assert home.entity("light.kitchen").state == "off"  # it changes when the house says so


def test_a_lock_is_not_switched_by_a_click() -> None:
    home = Home(default_home())
    lock = next(one.config.id for one in home.entities() if one.config.kind == "lock")
    with pytest.raises(Conflict, match="a lock is not switched here; light, switch, fan are"):
        asyncio.run(_controls(home).switch(lock, "on"))


def test_an_item_is_ticked_off_and_put_on_again() -> None:
    home = Home(default_home())
    milk = home.add_item("milk")
    assert milk is not None
    controls = _controls(home)
    controls.tick(milk.id, is_done=True)
    assert home.open_items() == ()
    revision = home.revision
    controls.tick(milk.id, is_done=True)
    assert home.revision == revision
    controls.tick(milk.id, is_done=False)
    assert home.open_items() == (milk,)


def test_a_timer_of_any_conversation_is_cancelled() -> None:
    async def scene() -> None:
        home = Home(default_home())
        timers = Timers(home, LoopClock(), Listener())
        timer = timers.start("conv_1", "en", 60, "tea")
        HomeControls(home, timers).cancel_timer(timer.id)
        assert home.snapshot().timers == ()

    run_virtual(scene())


def test_an_unknown_id_is_not_found() -> None:
    controls = _controls(Home(default_home()))
    with pytest.raises(NotFound, match="no device"):
        asyncio.run(controls.switch("light.moon", "on"))
    with pytest.raises(NotFound, match="no item 'x'"):
        controls.tick("x", is_done=True)
    with pytest.raises(NotFound, match="no timer 'x'"):
        controls.cancel_timer("x")
