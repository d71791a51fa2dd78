"""Calls of a client's MCP servers as items of a response, told as they come about."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import assert_never

from core.events import (
    ItemDeleted,
    OutputItemAdded,
    OutputItemDone,
    SessionEvent,
)
from core.ids import new_id
from core.items import Item, McpApprovalRequestItem, McpCallItem
from core.mcp_events import McpCallArgumentsDelta, McpCallProgress, McpProgress
from pipeline.conversation.history import History
from pipeline.tools.mcp.call_steps import (
    McpApprovalStep,
    McpArgumentsStep,
    McpCallStep,
    McpEndStep,
    McpStartStep,
)
from pipeline.tools.mcp.offer import SessionMcpOffer
from pipeline.tools.mcp.tool import ClientMcpTool
from pipeline.tools.results import INTERRUPTED, is_error


@dataclass(slots=True)
class _OpenMcpCall:
    item: McpCallItem
    index: int
    previous_item_id: str | None
    pieces: list[str] = field(default_factory=list[str])
    "Of its arguments."


class McpToolCallItems:
    """Of one response. `output`: its items that are done, by their place. An item is in the history
    from its beginning: clients ask for it when they hear of it."""

    def __init__(
        self,
        response_id: str,
        offer: SessionMcpOffer,
        history: History,
        emit: Callable[[SessionEvent], None],
        next_index: Callable[[], int],
        output: dict[int, Item],
    ) -> None:
        self._response_id, self._offer, self._history = response_id, offer, history
        self._emit, self._next_index, self._output = emit, next_index, output
        self._written: dict[str, _OpenMcpCall] = {}
        self._running: dict[str, _OpenMcpCall] = {}
        self.items: list[str] = []
        "Ids of what it added to the history."

    def push(self, step: McpCallStep) -> None:
        match step:
            case McpArgumentsStep(key=key, tool=tool, delta=delta):
                self._write(self._begun(key, tool), delta)
            case McpStartStep():
                self._start(step)
            case McpEndStep(call_id=call_id, result=result):
                self._end(self._running.pop(call_id), result)
            case McpApprovalStep():
                self._ask(step)
            case _:
                assert_never(step)

    def break_off(self, *, in_conversation: bool) -> None:
        """A call that is being made may still do what it was to do; one that was only begun comes
        to nothing."""
        for call in self._running.values():
            self._end(call, INTERRUPTED)
        self._running.clear()
        for call in self._written.values():
            self._done(call)
            if self._history.remove(call.item.id) and in_conversation:
                self._emit(ItemDeleted(call.item.id))
        self._written.clear()

    def _begun(self, key: str, tool: ClientMcpTool, request_id: str | None = None) -> _OpenMcpCall:
        call = self._written.get(key)
        if call is None:
            item = McpCallItem(
                new_id("mcp"),
                tool.label,
                tool.name,
                "",
                tool.spec.name,
                approval_request_id=request_id,
            )
            call = self._written[key] = _OpenMcpCall(
                item, self._next_index(), self._history.add(item)
            )
            self.items.append(item.id)
            added = item, call.previous_item_id
            self._emit(OutputItemAdded(self._response_id, call.index, *added))
        return call

    def _write(self, call: _OpenMcpCall, delta: str) -> None:
        call.pieces.append(delta)
        self._emit(McpCallArgumentsDelta(self._response_id, call.item.id, call.index, delta))

    def _start(self, step: McpStartStep) -> None:
        call = self._begun(step.key, step.tool, step.approval_request_id)
        if "".join(call.pieces).strip() in ("", "null"):  # some models write so that there are none
            self._write(call, json.dumps(dict(step.call.arguments)))
        arguments = "".join(call.pieces).strip().removeprefix("null")
        call.item = replace(call.item, arguments=arguments)
        self._history.replace(call.item)
        self._running[step.call.call_id] = self._written.pop(step.key)
        self._tell(call, "in_progress")

    def _end(self, call: _OpenMcpCall, result: str) -> None:
        call.item = replace(call.item, result=result)
        self._history.replace(call.item)
        self._tell(call, "failed" if is_error(result) else "completed")
        self._done(call)
        self._output[call.index] = call.item

    def _tell(self, call: _OpenMcpCall, stage: McpProgress) -> None:
        ids = self._response_id, call.item.id, call.index
        self._emit(McpCallProgress(*ids, stage, call.item.arguments))

    def _done(self, call: _OpenMcpCall) -> None:
        item, previous = call.item, call.previous_item_id
        self._emit(OutputItemDone(self._response_id, call.index, item, previous, has_audio=False))

    def _ask(self, step: McpApprovalStep) -> None:
        call, tool = step.call, step.tool
        arguments = json.dumps(dict(call.arguments))
        names = tool.label, tool.name, arguments, tool.spec.name
        item = McpApprovalRequestItem(new_id("mcpr"), *names)
        index, previous = self._next_index(), self._history.add(item)
        self.items.append(item.id)
        self._output[index] = item
        asks = self._offer.servers.approvals
        asks.ask(item.id, self._response_id, self._offer.request, call, tool)
        self._emit(OutputItemAdded(self._response_id, index, item, previous))
        self._emit(OutputItemDone(self._response_id, index, item, previous, has_audio=False))
