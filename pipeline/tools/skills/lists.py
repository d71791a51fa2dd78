"""The shopping list as tools."""

from collections.abc import Mapping, Sequence

from core.ports import ToolContext, ToolOutcome, ToolSpec
from pipeline.tools.home import Home
from pipeline.tools.skills.arguments import (
    SkillHandler,
    ToolError,
    read_text,
    run_tool,
    text_schema,
    tool,
)


class ListTools:
    """A ToolProvider that adds items to the shopping list, ticks them off and reads them out."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._handlers: Mapping[str, SkillHandler] = {
            "HassShoppingListAddItem": self._add,
            "HassShoppingListCompleteItem": self._complete,
            "HassShoppingListGetItems": self._read,
        }
        self._specs = _list_specs()

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        return self._specs

    async def call(
        self, name: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolOutcome:
        return run_tool(self._handlers, name, arguments, context)

    def _add(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        item = self._home.add_item(_item(arguments))
        if item is None:
            raise ToolError("the shopping list is full", code="list_full")
        return ToolOutcome({"item": item.text})

    def _complete(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        text = _item(arguments)
        item = self._home.complete_item(text)
        if item is None:
            raise ToolError(f"{text!r} is not on the list", code="no_such_item", item=text)
        return ToolOutcome({"item": item.text})

    def _read(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        return ToolOutcome({"items": [item.text for item in self._home.open_items()]})


def _list_specs() -> tuple[ToolSpec, ...]:
    item = {"item": text_schema("What to buy, one thing")}
    return (
        tool(
            "HassShoppingListAddItem",
            "Puts one item on the shopping list",
            item,
            required=("item",),
        ),
        tool(
            "HassShoppingListCompleteItem",
            "Ticks one item off the shopping list",
            item,
            required=("item",),
        ),
        tool(
            "HassShoppingListGetItems",
            "Tells what is on the shopping list",
            {},
            is_read_only=True,
        ),
    )


def _item(arguments: Mapping[str, object]) -> str:
    text = read_text(arguments, "item")
    if not text:
        raise ToolError("item is required", param="item")
    return text
