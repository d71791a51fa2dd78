""" "The shopping list" is that of the house, "my list" that of the person whose voice spoke."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from core.conversation.speakers import SpeakerMatch
from core.ports import SpeakerConfirmation, ToolContext, ToolOutcome
from pipeline.tools.home import Home, default_home
from pipeline.tools.skills import ListTools
from tests.pipeline.scripted_voices import ANNA, BEN

ADD, DONE, READ = (
    *("HassShoppingListAddItem", "HassShoppingListCompleteItem", "HassShoppingListGetItems"),
)
GUEST = ToolContext("conv", "en")
OF_ANNA, OF_BEN = replace(GUEST, speaker=ANNA), replace(GUEST, speaker=BEN)
MAX_ITEMS = 3


class Lists:
    """Keeps lists in memory."""

    def __init__(self) -> None:
        self.items: dict[str, list[str]] = {}

    async def add_item(self, person_id: str, text: str) -> str | None:
        items = self.items.setdefault(person_id, [])
        if len(items) >= MAX_ITEMS:
            return None
        items.append(text)
        return text

    async def complete_item(self, person_id: str, text: str) -> str | None:
        items = self.items.get(person_id, [])
        if text not in items:
            return None
        items.remove(text)
        return text

    async def open_items(self, person_id: str) -> Sequence[str]:
        return tuple(self.items.get(person_id, ()))


def play(*steps: tuple[ToolContext, str, dict[str, Any]]) -> list[ToolOutcome]:
    tools = ListTools(Home(default_home()), Lists())

    async def main() -> list[ToolOutcome]:
        return [await tools.call(name, arguments, context) for context, name, arguments in steps]

    return asyncio.run(main())


def mine(**arguments: str) -> dict[str, Any]:
    return {**arguments, "whose": "mine"}


def test_my_list_is_that_of_the_voice_and_the_shopping_list_that_of_the_house() -> None:
    outcomes = play(
        (OF_ANNA, ADD, mine(item="stamps")),
        (OF_ANNA, ADD, {"item": "milk"}),
        (OF_BEN, ADD, {"item": "bread", "whose": "house"}),
        (OF_ANNA, READ, mine()),
        (OF_BEN, READ, mine()),
        (OF_BEN, READ, {}),
        (OF_BEN, DONE, mine(item="stamps")),
        (OF_ANNA, DONE, mine(item="stamps")),
        (OF_ANNA, READ, mine()),
    )
    assert outcomes[0].data == {"item": "stamps", "whose": "mine", "private_to": ANNA.id}
    assert outcomes[1].data == {"item": "milk"}
    assert outcomes[3].data["items"] == ["stamps"]
    assert outcomes[4].data == {"items": [], "whose": "mine", "private_to": BEN.id}
    assert outcomes[5].data == {"items": ["milk", "bread"]}
    assert (outcomes[6].error, outcomes[6].data["private_to"]) == ("no_such_item", BEN.id)
    assert outcomes[7].error is None
    assert outcomes[8].data["items"] == []


def test_my_list_of_a_guest_is_that_of_the_house() -> None:
    added, read = play((GUEST, ADD, mine(item="milk")), (GUEST, READ, mine()))
    assert (added.data, read.data) == ({"item": "milk"}, {"items": ["milk"]})


def test_a_voice_that_is_not_known_yet_is_waited_for() -> None:
    async def confirmed(speaker: SpeakerMatch | None = ANNA) -> SpeakerConfirmation:
        return SpeakerConfirmation(speaker)

    early = replace(GUEST, confirm_speaker=confirmed)
    added, read = play((early, ADD, mine(item="stamps")), (OF_ANNA, READ, mine()))
    assert added.data["private_to"] == ANNA.id
    assert read.data["items"] == ["stamps"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [(mine(), "invalid_arguments"), ({"item": "x", "whose": "Ben"}, "invalid_arguments")],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], error: str) -> None:
    (outcome,) = play((OF_ANNA, ADD, arguments))
    assert outcome.error == error


def test_a_full_list_is_named() -> None:
    steps = [(OF_ANNA, ADD, mine(item=f"thing {number}")) for number in range(MAX_ITEMS + 1)]
    last = play(*steps)[-1]
    assert (last.error, last.data["message"]) == ("list_full", "the list of Anna is full")


def test_without_lists_of_people_the_tools_do_not_offer_them() -> None:
    for tools, is_offered in ((ListTools(Home(default_home())), False), (_with_lists(), True)):
        properties = [spec.parameters["properties"] for spec in tools.tools(GUEST)]
        assert ["whose" in one for one in properties] == [is_offered] * 3


def _with_lists() -> ListTools:
    return ListTools(Home(default_home()), Lists())
