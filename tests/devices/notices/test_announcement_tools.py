"""Tools with which programs speak in rooms, and ask people there. In virtual time."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from core.access.named_key import CALLER_KEY, NamedKey
from core.ports import DeviceLocation, ToolContext, ToolOutcome
from devices.fleet.presence import Presence
from devices.notices.announcement_tools import AnnouncementTools
from devices.notices.announcements import Announcements
from devices.registry.registry import DeviceRegistry
from pipeline.conversation.conversation import Conversations
from tests.devices.api.fakes import FakeLive, FakeRooms, FakeTalks, device
from tests.loop import run_virtual
from tests.pipeline.fakes import LoopClock

CONTEXT = ToolContext("", "en")

HOUSE = (
    replace(device("dev_1"), area="Kitchen"),
    replace(device("dev_2"), area="Kitchen"),
    replace(device("dev_3"), area="Attic"),
    replace(device("dev_4"), area="Cellar", standing="new"),
    replace(device("dev_5"), area="Hall", kind="wyoming"),
    replace(device("dev_6"), area=""),
    replace(device("dev_7"), area="Kitchen", kind="willow"),
)


@dataclass
class AskedLive(FakeLive):
    """A connected device beside which somebody is. `answer`: None if it cannot ask now."""

    answer: str | None = "pasta"
    after_s: float = 3.0
    can_be_asked: bool = True

    async def ask(self, question: str) -> str | None:
        self.heard.append(question)
        await asyncio.sleep(self.after_s if self.answer else 0)
        return self.answer


class House(FakeRooms):
    async def all_devices(self) -> Any:
        return HOUSE


@dataclass
class Browser:
    """A session of a browser that says where it stands."""

    area: str = "Office"
    conversation_key: str = "conv_1"
    heard: list[str] = field(default_factory=list)

    def say(self, text: str) -> bool:
        self.heard.append(text)
        return True

    async def ask(self, question: str) -> str | None:
        self.heard.append(question)
        return "pizza"


def call(
    name: str,
    arguments: Mapping[str, object],
    sessions: Sequence[Browser] = (),
    context: ToolContext = CONTEXT,
    **live: FakeLive,
) -> tuple[str | None, Any]:
    """Calls a tool in a house with these sessions and connected devices; returns error and
    result."""

    outcomes: list[ToolOutcome] = []
    talks = Conversations()

    async def main() -> None:
        rooms, presence = House({"Kitchen": ["dev_1", "dev_2"], "Attic": ["dev_3"]}), Presence()
        talks.get(None).sessions += sessions
        said = Announcements(FakeTalks(), rooms.as_directory(), presence, LoopClock())
        tools = AnnouncementTools(cast("DeviceRegistry", rooms), presence, said, talks)
        with ExitStack() as stack:
            for device_id, one in live.items():
                stack.enter_context(presence.connected(device_id, one))
            outcomes.append(await tools.call(name, arguments, context))

    run_virtual(main())
    return outcomes[0].error, outcomes[0].data


def test_rooms_are_listed_with_whether_somebody_can_be_asked() -> None:
    _, data = call("list_rooms", {}, dev_1=FakeLive(), dev_2=AskedLive(), dev_3=FakeLive())
    assert data == {
        "rooms": [
            {"name": "Attic", "can_be_asked": False},
            {"name": "Kitchen", "can_be_asked": True},
        ]
    }


def test_an_announcement_is_spoken_by_all_devices_of_the_room_or_waits() -> None:
    arguments = {"text": "Dinner is ready.", "room": " kitchen"}
    one, other = FakeLive(), FakeLive()
    assert call("announce_in_room", {**arguments, "room": "Kitchen"}, dev_1=one, dev_2=other) == (
        None,
        {"spoken_by": 2, "is_waiting": False},
    )
    assert one.heard == other.heard == ["Dinner is ready."]
    assert call("announce_in_room", arguments)[1] == {"spoken_by": 0, "is_waiting": True}
    error, data = call("announce_in_room", {**arguments, "room": "Cellar"})
    assert (error, data["rooms"]) == ("no_such_room", ["Attic", "Kitchen"])


def test_a_question_goes_to_the_first_device_that_can_ask() -> None:
    busy, free = AskedLive(answer=None), AskedLive()
    ask = {"question": "Pizza or pasta?", "room": "kitchen"}
    error, data = call("ask_in_room", ask, dev_1=busy, dev_2=free)
    assert (error, data) == (None, {"answer": "pasta", "device": "dev_2"})
    assert busy.heard == free.heard == ["Pizza or pasta?"]


def test_a_refusal_says_why_and_names_the_devices_that_can_be_asked() -> None:
    ask = {"question": "Pizza or pasta?", "room": "kitchen"}
    old, busy = AskedLive(can_be_asked=False), AskedLive(answer=None)
    error, data = call("ask_in_room", ask, dev_1=old, dev_2=busy, dev_3=AskedLive(), dev_7=old)
    assert error == "nobody_to_ask"
    assert data["reasons"] == {
        "dev_1": "it is connected only during a conversation",
        "dev_2": "it is busy, or left while it was asked",
        "dev_7": "Willow's firmware does not listen after a notification",
    }
    assert data["can_be_asked"] == {"Attic": ["dev_3"], "Kitchen": ["dev_2"]}
    error, data = call("ask_in_room", ask, dev_3=AskedLive())
    assert data["reasons"]["dev_7"] == "it is not connected"
    error, data = call("ask_in_room", {**ask, "room": "Hall"}, dev_3=AskedLive())
    assert (error, data["can_be_asked"]) == ("no_such_room", {"Attic": ["dev_3"]})


def test_a_browser_that_says_its_room_is_asked_there() -> None:
    browser, silent = Browser(), Browser("")
    ask = {"question": "Pizza or pasta?", "room": "office"}
    assert call("ask_in_room", ask, [browser, silent]) == (
        None,
        {"answer": "pizza", "device": "a browser or program"},
    )
    said = call("announce_in_room", {"text": "Dinner.", "room": "Office"}, [browser])
    assert said == (None, {"spoken_by": 1, "is_waiting": False})
    assert (browser.heard, silent.heard) == (["Pizza or pasta?", "Dinner."], [])
    _, data = call("list_rooms", {}, [browser])
    assert {"name": "Office", "can_be_asked": True} in data["rooms"]
    error, data = call("ask_in_room", {**ask, "room": "Hall"}, [browser])
    assert (error, data["can_be_asked"]) == ("no_such_room", {"Office": ["a browser or program"]})
    # A device of the room comes first.
    kitchen = Browser("Kitchen")
    _, data = call("ask_in_room", {**ask, "room": "Kitchen"}, [kitchen], dev_2=AskedLive())
    assert data["device"] == "dev_2"
    assert kitchen.heard == []


def test_who_asks_is_not_asked() -> None:
    ask = {"question": "Who is there?", "room": "Kitchen"}
    asker = replace(CONTEXT, place=DeviceLocation(device_id="dev_1"))
    _, data = call("ask_in_room", ask, context=asker, dev_1=AskedLive(), dev_2=AskedLive())
    assert data["device"] == "dev_2"
    error, data = call(
        "ask_in_room",
        {**ask, "room": "Office"},
        [Browser()],
        replace(CONTEXT, conversation_id="conv_1"),
    )
    assert error == "nobody_to_ask"
    assert data["reasons"] == {"a browser or program": "the question comes from there"}


@pytest.mark.parametrize(("after_s", "error"), [(9.9, None), (10.1, "no_answer")])
def test_a_question_waits_as_long_as_it_may(after_s: float, error: str | None) -> None:
    ask = {"question": "Who is there?", "room": "Attic", "wait_s": 10}
    assert call("ask_in_room", ask, dev_3=AskedLive(after_s=after_s))[0] == error


def test_a_key_that_may_not_manage_devices_does_not_see_the_tools() -> None:
    rooms, presence, talks = House(), Presence(), Conversations()
    said = Announcements(FakeTalks(), rooms.as_directory(), presence, LoopClock())
    tools = AnnouncementTools(cast("DeviceRegistry", rooms), presence, said, talks)
    assert len(tools.tools(CONTEXT)) == 3
    for scopes, count in ((("talk",), 0), (("talk", "manage"), 3)):
        reset = CALLER_KEY.set(NamedKey("key_1", "anna", cast("Any", scopes)))
        assert len(tools.tools(CONTEXT)) == count
        CALLER_KEY.reset(reset)
