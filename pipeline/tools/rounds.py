"""Calls of tools while an answer is made: run by us, each told of, or put before the client."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from core.ids import new_id
from core.items import FunctionCallItem, FunctionOutputItem, Item
from core.ports import ToolContext
from engines.base import CallDelta, Message, ToolCall
from pipeline.tools.fillers import Fillers, SilenceTimer
from pipeline.tools.mcp.call_steps import (
    McpApprovalStep,
    McpArgumentsStep,
    McpCallStep,
    McpEndStep,
    McpStartStep,
)
from pipeline.tools.mcp.tool import ApprovalDecision, ClientMcpTool
from pipeline.tools.offer import ToolOffer
from pipeline.tools.results import INTERRUPTED, refused_result
from pipeline.tools.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class ToolAccess:
    """What an answer may do besides talking."""

    toolbox: Toolbox
    context: ToolContext
    is_confirmed: Callable[[], Awaitable[object]]
    "Waited for before a tool that changes something: the turn may not be over."
    record: Callable[[Item], None]
    "Takes calls and their results, for the history."
    fillers: Fillers = field(default_factory=Fillers)
    say: Callable[[str], bool] = lambda _: True
    "Takes what is said while a tool is slow. False: not now, try again."
    tell: Callable[[McpCallStep], None] = lambda _: None
    "Takes what becomes of the calls of a client's MCP servers."


@dataclass(frozen=True, slots=True)
class ToolCallBatch:
    """Calls that are made side by side."""

    calls: Sequence[ToolCall]
    server: frozenset[str] = frozenset()
    "Names of the server's own tools."
    remote: Mapping[str, ClientMcpTool] = field(default_factory=dict[str, ClientMcpTool])
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    "Id of a call -> what its arguments were told under."
    requests: Mapping[str, str] = field(default_factory=dict[str, str])
    "Id of a call -> the item by which it was allowed."


@dataclass(frozen=True, slots=True)
class McpCallRound:
    """One round's calls of the client's MCP servers."""

    tools: ToolOffer
    hands: ToolAccess
    number: int

    def written(self, delta: CallDelta) -> None:
        """More of a call's arguments; who has to allow it sees it when it is whole."""
        tool = self.tools.remote.get(delta.name)
        if tool is not None and not tool.needs_approval:
            self.hands.tell(McpArgumentsStep(self._key(delta.call_id), tool, delta.arguments))

    def batch(self, written: Sequence[ToolCall], apart: Sequence[ToolCall]) -> ToolCallBatch:
        """`apart`: the same calls with ids that nothing else in the answer has."""
        ids = zip(written, apart, strict=True)
        keys = {call.call_id: self._key(one.call_id) for one, call in ids}
        return ToolCallBatch(apart, self.tools.server, self.tools.remote, keys)

    async def ask(self, calls: Sequence[ToolCall]) -> None:
        """Put calls before the client, once it is certain that they are meant."""
        if calls:
            await self.hands.is_confirmed()
        for call in calls:
            self.hands.tell(McpApprovalStep(call, self.tools.remote[call.name]))

    def _key(self, call_id: str) -> str:
        """Models begin to count anew in each round."""
        return f"{self.number}/{call_id}"


async def run_calls(batch: ToolCallBatch, hands: ToolAccess, silence: SilenceTimer) -> list[str]:
    """One result as JSON per call, in order. `silence`: of the answer."""
    calls = batch.calls
    if not all(_may_run_early(call, batch, hands) for call in calls):
        await hands.is_confirmed()
    for call in calls:
        if (tool := batch.remote.get(call.name)) is not None:
            key = batch.keys.get(call.call_id, call.call_id)
            hands.tell(McpStartStep(key, call, tool, batch.requests.get(call.call_id)))

    def told(call: ToolCall, result: str) -> None:
        if call.name in batch.remote:
            hands.tell(McpEndStep(call.call_id, result))

    also = {name: one.tool for name, one in batch.remote.items()}
    work = hands.toolbox.run(calls, hands.context, batch.server, also=also, on_result=told)
    silence.begin()
    try:
        return await work
    except asyncio.CancelledError:  # who interrupts says something, and the model is asked again
        for call in calls:
            if call.name not in batch.remote and not _may_run_early(call, batch, hands):
                record_call(call, INTERRUPTED, hands.record)
        raise


async def run_decided_calls(
    approved: Sequence[ApprovalDecision], hands: ToolAccess, silence: SilenceTimer
) -> list[Message]:
    """What the client allowed is run, and what it did not is told the model."""
    yes = [one for one in approved if one.approve]
    batch = ToolCallBatch(
        [one.call for one in yes],
        remote={one.call.name: one.tool for one in yes},
        requests={one.call.call_id: one.request_id for one in yes},
    )
    results = await run_calls(batch, hands, silence) if yes else []
    messages: list[Message] = []
    for one in approved:
        if not one.approve:
            messages += call_messages(one.call, refused_result(one.reason))
    for one, result in zip(yes, results, strict=True):
        messages += call_messages(one.call, result)
    return messages


def call_messages(call: ToolCall, result: str) -> tuple[Message, Message]:
    """A call and its result, as a model sees them."""
    asked = Message("assistant", tool_calls=(call,))
    return asked, Message("tool", result, call_id=call.call_id)


def record_call(call: ToolCall, result: str, into: Callable[[Item], None]) -> None:
    """For the history."""
    arguments = json.dumps(dict(call.arguments))
    into(FunctionCallItem(new_id("item"), call.call_id, call.name, arguments))
    into(FunctionOutputItem(new_id("item"), call.call_id, result))


def _may_run_early(call: ToolCall, batch: ToolCallBatch, hands: ToolAccess) -> bool:
    if (remote := batch.remote.get(call.name)) is not None:
        return remote.spec.is_read_only
    return hands.toolbox.may_run_early(call, hands.context)
