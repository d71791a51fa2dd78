"""Exchanges of one person are left out of the prompts of others who speak in the conversation."""

import pytest

from core.conversation.items import (
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    MessageItem,
    TextPart,
)
from pipeline.conversation.private_exchanges import visible_items


def said(name: str, text: str) -> MessageItem:
    return MessageItem(text, "user", (TextPart(text),), speaker=name)


def answer(text: str) -> MessageItem:
    return MessageItem(text, "assistant", (TextPart(text),))


def call(number: int, output: str) -> tuple[Item, Item]:
    name = "HassShoppingListGetItems"
    return (
        FunctionCallItem(f"call_{number}", f"id_{number}", name, '{"whose": "mine"}'),
        FunctionOutputItem(f"out_{number}", f"id_{number}", output),
    )


GREETING = answer("Hello, this is the house.")
OF_ANNA = (
    said("Anna", "what is on my list"),
    *call(1, '{"items": ["a present for Ben"], "private_to": "spk_1"}'),
    answer("A present for Ben."),
)
OF_HOUSE = (said("Ben", "what do we need"), *call(2, '{"items": ["milk"]}'), answer("Milk."))
ITEMS = (GREETING, *OF_ANNA, *OF_HOUSE)


@pytest.mark.parametrize(
    ("person_id", "visible"),
    [("spk_1", ITEMS), ("spk_2", (GREETING, *OF_HOUSE)), ("", (GREETING, *OF_HOUSE))],
)
def test_only_the_person_sees_the_exchange(person_id: str, visible: tuple[Item, ...]) -> None:
    assert tuple(visible_items(ITEMS, person_id)) == visible


def test_without_private_results_nothing_is_copied() -> None:
    items = (GREETING, *OF_HOUSE)
    assert visible_items(items, "") is items


@pytest.mark.parametrize(
    "output", ["private_to", '"private_to"', '["private_to"]', '{"private_to": 5}', "{private_to"]
)
def test_other_results_that_have_the_word_are_nobodys(output: str) -> None:
    items = (said("Anna", "hello"), *call(1, output))
    assert tuple(visible_items(items, "spk_2")) == items
