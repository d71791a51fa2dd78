"""The shopping list of the house, and the list of each person whose voice is known, as tools."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from core.conversation.speakers import SpeakerMatch
from core.ports import ToolContext, ToolOutcome, ToolSpec
from pipeline.tools.calls.results import PRIVATE_TO
from pipeline.tools.home import Home
from pipeline.tools.skills.arguments import (
    SkillHandler,
    ToolError,
    read_text,
    run_tool,
    text_schema,
    tool,
)

ADD, COMPLETE, READ = (
    *("HassShoppingListAddItem", "HassShoppingListCompleteItem", "HassShoppingListGetItems"),
)
"Names of the tools, as Home Assistant has them."

HOUSE, MINE = "house", "mine"
"Values of the argument `whose`: the list of the house, and that of the person who speaks."


class PersonalLists(Protocol):
    """Keeps a list for each person."""

    async def add_item(self, person_id: str, text: str) -> str | None:
        """Adds an item, unless it is there, and returns its text. None: the list is full. Raises
        NotFound speaker_not_found, StorageError."""
        ...

    async def complete_item(self, person_id: str, text: str) -> str | None:
        """Takes an item off, and returns its text. None: it is not on the list. Raises
        StorageError."""
        ...

    async def open_items(self, person_id: str) -> Sequence[str]:
        """Returns the texts on the list, the oldest first. Raises StorageError."""
        ...


class ListTools:
    """A ToolProvider that adds items to a list, ticks them off and reads them out.

    "The shopping list" is that of the house. "My list" is that of the person whose voice spoke,
    which nobody else hears. For a guest, "my list" is that of the house.
    """

    def __init__(self, home: Home, personal: PersonalLists | None = None) -> None:
        """`personal`: None: people have no lists of their own."""
        self._home, self._personal = home, personal
        self._handlers: Mapping[str, SkillHandler] = {
            ADD: self._add,
            COMPLETE: self._complete,
            READ: self._read,
        }
        self._specs = _list_specs(has_own=personal is not None)

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        return self._specs

    async def call(
        self, name: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolOutcome:
        whose = arguments.get("whose")
        if whose not in (None, HOUSE, MINE):
            message = f"whose must be {HOUSE} or {MINE}"
            return ToolOutcome({"message": message, "param": "whose"}, error=ToolError.code)
        if self._personal is None or whose != MINE or name not in self._handlers:
            return run_tool(self._handlers, name, arguments, context)
        # The voice may be known later than the words; the list of a person is worth the wait.
        person = context.speaker or (await context.confirm_speaker()).speaker
        if person is None:
            return run_tool(self._handlers, name, arguments, context)
        try:
            data = await _call_personal(self._personal, name, arguments, person)
        except ToolError as error:
            return ToolOutcome({**error.data, PRIVATE_TO: person.id}, error=error.code)
        return ToolOutcome({**data, "whose": MINE, PRIVATE_TO: person.id})

    def _add(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        item = self._home.add_item(_item(arguments))
        if item is None:
            raise ToolError("the shopping list is full", code="list_full")
        return ToolOutcome({"item": item.text})

    def _complete(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        text = _item(arguments)
        item = self._home.complete_item(text)
        if item is None:
            raise _not_on_list(text)
        return ToolOutcome({"item": item.text})

    def _read(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        return ToolOutcome({"items": [item.text for item in self._home.open_items()]})


async def _call_personal(
    lists: PersonalLists, name: str, arguments: Mapping[str, object], person: SpeakerMatch
) -> Mapping[str, object]:
    """Runs a tool on the list of a person. Raises ToolError, NotFound, StorageError."""
    if name == READ:
        return {"items": list(await lists.open_items(person.id))}
    text = _item(arguments)
    if name == COMPLETE:
        done = await lists.complete_item(person.id, text)
        if done is None:
            raise _not_on_list(text)
        return {"item": done}
    added = await lists.add_item(person.id, text)
    if added is None:
        raise ToolError(f"the list of {person.name} is full", code="list_full")
    return {"item": added}


def _list_specs(*, has_own: bool) -> tuple[ToolSpec, ...]:
    whose: dict[str, object] = {
        "type": "string",
        "enum": [HOUSE, MINE],
        "description": f"`{MINE}` only if the user says my list; else the list of the house",
    }
    own: dict[str, dict[str, object]] = {"whose": whose} if has_own else {}
    item = {"item": text_schema("What to buy, one thing"), **own}
    required = ("item",)
    return (
        tool(ADD, "Puts one item on the shopping list", item, required=required),
        tool(COMPLETE, "Ticks one item off the shopping list", item, required=required),
        tool(READ, "Tells what is on the shopping list", own, is_read_only=True),
    )


def _item(arguments: Mapping[str, object]) -> str:
    text = read_text(arguments, "item")
    if not text:
        raise ToolError("item is required", param="item")
    return text


def _not_on_list(text: str) -> ToolError:
    return ToolError(f"{text!r} is not on the list", code="no_such_item", item=text)
