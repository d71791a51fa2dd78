"""Leaves out of a prompt what another person did with something of their own. Pure.

Several people may speak in one conversation, and the model reads what all of them said, with their
names. A tool that reads or changes what belongs to one person marks its result with PRIVATE_TO. The
whole exchange is then for that person: the words that asked for it, the calls, and the answer.
"""

import json
from collections.abc import Iterable, Sequence

from core.conversation.items import FunctionOutputItem, Item, MessageItem
from pipeline.tools.calls.results import PRIVATE_TO


def visible_items(items: Sequence[Item], person_id: str) -> Sequence[Item]:
    """Returns the items without the private exchanges of others. `person_id`: who speaks now;
    empty: a guest, written words, or a voice that is not known yet."""
    if not any(_owner(item) not in ("", person_id) for item in items):
        return items
    return [
        item
        for exchange in _exchanges(items)
        if all(_owner(one) in ("", person_id) for one in exchange)
        for item in exchange
    ]


def _exchanges(items: Iterable[Item]) -> Sequence[Sequence[Item]]:
    """Returns the items in groups, each of which begins with a message of the user."""
    exchanges: list[list[Item]] = [[]]
    for item in items:
        if isinstance(item, MessageItem) and item.role == "user":
            exchanges.append([])
        exchanges[-1].append(item)
    return exchanges


def _owner(item: Item) -> str:
    """Returns the id of the person to whom a result belongs; empty: nobody in particular."""
    if not isinstance(item, FunctionOutputItem) or PRIVATE_TO not in item.output:
        return ""
    try:
        data = json.loads(item.output)
    except ValueError:
        return ""
    owner = data.get(PRIVATE_TO, "") if isinstance(data, dict) else ""
    return owner if isinstance(owner, str) else ""
