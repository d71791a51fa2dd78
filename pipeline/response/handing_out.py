"""Calls of the client's tools as items of a response: begun while the model writes them, done with
the answer, so that nothing of a cancelled one is ever run."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from core.events import (
    FunctionCallArgumentsDelta,
    ItemDeleted,
    OutputItemAdded,
    OutputItemDone,
    SessionEvent,
)
from core.ids import new_id
from core.items import FunctionCallItem, Item
from engines.base import CallDelta, ToolCall
from pipeline.conversation.history import History
from pipeline.response.tool_items import McpToolCallItems
from pipeline.tools.mcp.call_steps import McpCallStep
from pipeline.tools.mcp.offer import SessionMcpOffer


@dataclass(slots=True)
class _OpenFunctionCall:
    item: FunctionCallItem
    index: int
    previous_item_id: str | None
    pieces: list[str] = field(default_factory=list[str])
    "Of its arguments."

    @property
    def written(self) -> str:
        return "".join(self.pieces)


class ToolCallItems:
    """Of one response. `next_index`: in its output. `output`: its items that are done."""

    def __init__(
        self,
        response_id: str,
        history: History,
        emit: Callable[[SessionEvent], None],
        next_index: Callable[[], int],
        output: dict[int, Item],
        remote: SessionMcpOffer | None = None,
    ) -> None:
        self._response_id, self._history = response_id, history
        self._emit, self._next_index, self._output = emit, next_index, output
        told = history, emit, next_index, output
        self._remote = None if remote is None else McpToolCallItems(response_id, remote, *told)
        self._open: dict[str, _OpenFunctionCall] = {}
        "By the model's id: ours are others, since models repeat theirs."

    @property
    def items(self) -> Sequence[str]:
        """Ids of what MCP servers added to the history."""
        return () if self._remote is None else self._remote.items

    def push(self, step: CallDelta | McpCallStep) -> None:
        if isinstance(step, CallDelta):
            self._write(self._begun(step.call_id, step.name), step.arguments)
        else:
            assert self._remote is not None
            self._remote.push(step)

    def finish(self, call: ToolCall) -> None:
        """All of it is known, and the client is to run it."""
        open_ = self._begun(call.call_id, call.name)
        if open_.written.strip() in ("", "null"):  # how some models write that there are none
            self._write(open_, json.dumps(dict(call.arguments)))
        arguments = open_.written.strip().removeprefix("null")  # unsaid, where that was said first
        item = replace(open_.item, arguments=arguments, status="completed")
        previous = self._history.add(item)
        del self._open[call.call_id]
        self._done(open_, item, previous)
        self._output[open_.index] = item

    def break_off(self, *, in_conversation: bool) -> None:
        """What was begun comes to nothing: it is done as it is, and in no conversation."""
        for open_ in self._open.values():
            item = replace(open_.item, arguments=open_.written, status="incomplete")
            self._done(open_, item, open_.previous_item_id)
            if in_conversation:
                self._emit(ItemDeleted(item.id))
        self._open.clear()
        if self._remote is not None:
            self._remote.break_off(in_conversation=in_conversation)

    def _begun(self, call_id: str, name: str) -> _OpenFunctionCall:
        open_ = self._open.get(call_id)
        if open_ is None:
            item = FunctionCallItem(new_id("item"), new_id("call"), name, "", "in_progress")
            before = [other.item.id for other in self._open.values()]
            previous = before[-1] if before else self._history.last_id()
            open_ = self._open[call_id] = _OpenFunctionCall(item, self._next_index(), previous)
            self._emit(OutputItemAdded(self._response_id, open_.index, item, previous))
        return open_

    def _write(self, open_: _OpenFunctionCall, delta: str) -> None:
        open_.pieces.append(delta)
        item = open_.item
        told = FunctionCallArgumentsDelta(
            self._response_id, item.id, open_.index, item.call_id, delta
        )
        self._emit(told)

    def _done(self, open_: _OpenFunctionCall, item: FunctionCallItem, previous: str | None) -> None:
        self._emit(OutputItemDone(self._response_id, open_.index, item, previous, has_audio=False))
