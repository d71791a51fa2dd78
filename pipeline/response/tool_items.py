"""Reports the tool calls of a response to the client, as items that grow while the model writes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from core.conversation.events import (
    FunctionCallArgumentsDelta,
    ItemDeleted,
    McpCallArgumentsDelta,
    McpCallProgress,
    McpProgress,
    OutputItemAdded,
    OutputItemDone,
    SessionEvent,
)
from core.conversation.ids import new_id
from core.conversation.items import FunctionCallItem, Item, McpApprovalRequestItem, McpCallItem
from engines.base import CallDelta, ToolCall
from pipeline.conversation.history import History
from pipeline.tools.calls.results import INTERRUPTED, is_error
from pipeline.tools.mcp.call_steps import (
    McpApprovalStep,
    McpArgumentsStep,
    McpCallStep,
    McpEndStep,
    McpStartStep,
)
from pipeline.tools.mcp.session_servers import SessionMcpOffer
from pipeline.tools.mcp.tool import ClientMcpTool


@dataclass(slots=True)
class _OpenMcpCall:
    """An MCP call that is being written or run, as an item of the response."""

    item: McpCallItem
    index: int
    previous_item_id: str | None
    pieces: list[str] = field(default_factory=list[str])
    "Pieces of its arguments, in JSON."


class McpToolCallItems:
    """Turns the MCP calls of one response into items and events.

    next_index: allocates the next output index of the response.
    output: finished items by output index, shared with `Response`.

    An item is in the history from its beginning: clients ask for it when they get its first event.
    """

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
        self._open_calls: dict[str, _OpenMcpCall] = {}
        self._running: dict[str, _OpenMcpCall] = {}
        self.items: list[str] = []
        "Ids of the items that were added to the history."

    def push(self, step: McpCallStep) -> None:
        """Reports one step of an MCP call to the client."""
        match step:
            case McpArgumentsStep(key=key, tool=tool, delta=delta):
                self._write(self._open_call(key, tool), delta)
            case McpStartStep():
                self._start(step)
            case McpEndStep(call_id=call_id, result=result):
                self._end(self._running.pop(call_id), result)
            case McpApprovalStep():
                self._request_approval(step)
            case _:
                assert_never(step)

    def break_off(self, *, in_conversation: bool) -> None:
        """Ends the calls of a cancelled response.

        A running call may still take effect, so it ends as interrupted. One that was only being
        written is removed.
        """
        for call in self._running.values():
            self._end(call, INTERRUPTED)
        self._running.clear()
        for call in self._open_calls.values():
            self._done(call)
            if self._history.remove(call.item.id) and in_conversation:
                self._emit(ItemDeleted(call.item.id))
        self._open_calls.clear()

    def _open_call(
        self, key: str, tool: ClientMcpTool, request_id: str | None = None
    ) -> _OpenMcpCall:
        call = self._open_calls.get(key)
        if call is None:
            item = McpCallItem(
                new_id("mcp"),
                tool.label,
                tool.name,
                "",
                tool.spec.name,
                approval_request_id=request_id,
            )
            call = self._open_calls[key] = _OpenMcpCall(
                item, self._next_index(), self._history.add(item)
            )
            self.items.append(item.id)
            self._emit(OutputItemAdded(self._response_id, call.index, item, call.previous_item_id))
        return call

    def _write(self, call: _OpenMcpCall, delta: str) -> None:
        call.pieces.append(delta)
        self._emit(McpCallArgumentsDelta(self._response_id, call.item.id, call.index, delta))

    def _start(self, step: McpStartStep) -> None:
        call = self._open_call(step.key, step.tool, step.approval_request_id)
        # some models write "no arguments" as nothing or as null
        if "".join(call.pieces).strip() in ("", "null"):
            self._write(call, json.dumps(dict(step.call.arguments)))
        arguments = "".join(call.pieces).strip().removeprefix("null")
        call.item = replace(call.item, arguments=arguments)
        self._history.replace(call.item)
        self._running[step.call.call_id] = self._open_calls.pop(step.key)
        self._report_progress(call, "in_progress")

    def _end(self, call: _OpenMcpCall, result: str) -> None:
        call.item = replace(call.item, result=result)
        self._history.replace(call.item)
        self._report_progress(call, "failed" if is_error(result) else "completed")
        self._done(call)
        self._output[call.index] = call.item

    def _report_progress(self, call: _OpenMcpCall, stage: McpProgress) -> None:
        item = call.item
        self._emit(McpCallProgress(self._response_id, item.id, call.index, stage, item.arguments))

    def _done(self, call: _OpenMcpCall) -> None:
        item, previous = call.item, call.previous_item_id
        self._emit(OutputItemDone(self._response_id, call.index, item, previous, has_audio=False))

    def _request_approval(self, step: McpApprovalStep) -> None:
        call, tool = step.call, step.tool
        arguments = json.dumps(dict(call.arguments))
        item = McpApprovalRequestItem(
            new_id("mcpr"), tool.label, tool.name, arguments, tool.spec.name
        )
        index, previous = self._next_index(), self._history.add(item)
        self.items.append(item.id)
        self._output[index] = item
        approvals = self._offer.servers.approvals
        approvals.ask(item.id, self._response_id, self._offer.request, call, tool)
        self._emit(OutputItemAdded(self._response_id, index, item, previous))
        self._emit(OutputItemDone(self._response_id, index, item, previous, has_audio=False))


# Calls of the client's tools. An item begins while the model writes the call. It is done with the
# response, so that no client runs a call of a cancelled response.


@dataclass(slots=True)
class _OpenFunctionCall:
    """A call of a client's tool that is being written, as an item of the response."""

    item: FunctionCallItem
    index: int
    previous_item_id: str | None
    pieces: list[str] = field(default_factory=list[str])
    "Pieces of its arguments, in JSON."

    @property
    def written(self) -> str:
        return "".join(self.pieces)


class ToolCallItems:
    """Turns all tool calls of one response into items and events.

    next_index: allocates the next output index of the response.
    output: finished items by output index, shared with `Response`.
    mcp_offer: MCP servers whose tools were offered; None: none.
    """

    def __init__(
        self,
        response_id: str,
        history: History,
        emit: Callable[[SessionEvent], None],
        next_index: Callable[[], int],
        output: dict[int, Item],
        mcp_offer: SessionMcpOffer | None = None,
    ) -> None:
        self._response_id, self._history = response_id, history
        self._emit, self._next_index, self._output = emit, next_index, output
        self._mcp_items = (
            None
            if mcp_offer is None
            else McpToolCallItems(response_id, mcp_offer, history, emit, next_index, output)
        )
        self._open: dict[str, _OpenFunctionCall] = {}
        "Open calls by the model's call id. Clients get new ids, because models repeat theirs."

    @property
    def items(self) -> Sequence[str]:
        """Ids of the items that MCP calls added to the history."""
        return () if self._mcp_items is None else self._mcp_items.items

    def push(self, step: CallDelta | McpCallStep) -> None:
        """Reports more of a client's tool call, or a step of an MCP call."""
        if isinstance(step, CallDelta):
            self._write(self._open_call(step.call_id, step.name), step.arguments)
        else:
            assert self._mcp_items is not None
            self._mcp_items.push(step)

    def finish(self, call: ToolCall) -> None:
        """Finishes the item of a call whose arguments are complete. The client is to run it."""
        open_ = self._open_call(call.call_id, call.name)
        # some models write "no arguments" as nothing or as null
        if open_.written.strip() in ("", "null"):
            self._write(open_, json.dumps(dict(call.arguments)))
        # a model may write null first, then arguments
        arguments = open_.written.strip().removeprefix("null")
        item = replace(open_.item, arguments=arguments, status="completed")
        previous = self._history.add(item)
        del self._open[call.call_id]
        self._done(open_, item, previous)
        self._output[open_.index] = item

    def break_off(self, *, in_conversation: bool) -> None:
        """Ends the calls of a cancelled response: each is done as incomplete and leaves the
        conversation."""
        for open_ in self._open.values():
            item = replace(open_.item, arguments=open_.written, status="incomplete")
            self._done(open_, item, open_.previous_item_id)
            if in_conversation:
                self._emit(ItemDeleted(item.id))
        self._open.clear()
        if self._mcp_items is not None:
            self._mcp_items.break_off(in_conversation=in_conversation)

    def _open_call(self, call_id: str, name: str) -> _OpenFunctionCall:
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
        delta_event = FunctionCallArgumentsDelta(
            self._response_id, item.id, open_.index, item.call_id, delta
        )
        self._emit(delta_event)

    def _done(self, open_: _OpenFunctionCall, item: FunctionCallItem, previous: str | None) -> None:
        self._emit(OutputItemDone(self._response_id, open_.index, item, previous, has_audio=False))
