"""Delegated tasks of one session, and the texts that an application appends. No I/O."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal, assert_never

from core.conversation.ids import new_id
from core.conversation.items import (
    FunctionCallItem,
    FunctionOutputItem,
    Item,
    MessageItem,
    TextPart,
)
from core.errors import NotFound, RequestError
from signaling.live.client_events import (
    AppendEvent,
    BackendMessage,
    CommentaryAppend,
    InstructionsAppend,
    NewCallOutput,
    ThinkingAppend,
)

MAX_DELEGATIONS = 256
"Delegations that are remembered. An application answers within minutes, and a session may go on."

DELEGATED = '{"status": "delegated, the result comes later"}'
"""Result of the model's call. The application's words come at the end of the conversation, where
models look for what is new: a result stands directly after its call, however late it is."""
THINKING = "Background, which nobody asked you to say aloud: {content}"
COMMENTARY = "Tell the user now, in your own words: {content}"
"Texts in which the model gets what an application appends."


@dataclass(frozen=True, slots=True)
class Appended:
    """An item that an append of the client adds to the conversation."""

    item: Item
    is_spoken: bool
    "True if the model is to speak about it now."


class Delegations:
    """Delegated tasks of one session, by their ids."""

    def __init__(self, target: Literal["client", "responses"]) -> None:
        self._target = target
        self._ids: OrderedDict[str, None] = OrderedDict()

    def begin(self) -> str:
        """Notes that the model delegated a task; returns the delegation's id."""
        delegation_id = new_id("deleg")
        self._ids[delegation_id] = None
        if len(self._ids) > MAX_DELEGATIONS:
            self._ids.popitem(last=False)
        return delegation_id

    def appended(self, event: AppendEvent) -> Appended:
        """Returns what an append does. Raises RequestError, and NotFound for an unknown
        delegation."""
        self._check(event.delegation_id)
        match event:
            case InstructionsAppend(content=content):
                return Appended(_system(content), is_spoken=False)
            case ThinkingAppend(content=content):
                return Appended(_system(THINKING.format(content=content)), is_spoken=False)
            case CommentaryAppend(content=content):
                return Appended(_system(COMMENTARY.format(content=content)), is_spoken=True)
            case _:
                assert_never(event)

    def _check(self, delegation_id: str | None) -> None:
        if delegation_id is None:
            return
        if self._target == "responses":
            raise RequestError(
                "A delegation_id is for client delegation only: with Responses delegation send"
                " null.",
                code="invalid_value",
                param="delegation_id",
            )
        if delegation_id not in self._ids:
            raise NotFound(
                "This session has no such delegation.",
                code="delegation_not_found",
                param="delegation_id",
            )


def delegated_result(call: FunctionCallItem) -> FunctionOutputItem:
    """Returns the result of a call that delegated a task to the application."""
    return FunctionOutputItem(new_id("item"), call.call_id, DELEGATED)


def responses_item(sent: BackendMessage | NewCallOutput) -> Item:
    """Converts an item of the Responses API."""
    item_id = sent.id or new_id("item")
    match sent:
        case NewCallOutput(call_id=call_id, output=output):
            return FunctionOutputItem(item_id, call_id, output)
        case BackendMessage(role=role, content=content):
            texts = [content] if isinstance(content, str) else [part.text for part in content]
            own: Literal["system", "user", "assistant"] = "system" if role == "developer" else role
            return MessageItem(item_id, own, tuple(TextPart(text) for text in texts))
        case _:
            assert_never(sent)


def _system(text: str) -> MessageItem:
    return MessageItem(new_id("item"), "system", (TextPart(text),))
