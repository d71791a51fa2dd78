"""Tool calls of one round: run by the server, reported to the client, or shown to it for
approval."""

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
    """Everything that a response may use besides text: tools, history, fillers, events."""

    toolbox: Toolbox
    context: ToolContext
    is_confirmed: Callable[[], Awaitable[object]]
    "Waits until the turn is confirmed. Awaited before a tool changes anything."
    record: Callable[[Item], None]
    "Receives calls and results for the history."
    fillers: Fillers = field(default_factory=Fillers)
    say: Callable[[str], bool] = lambda _: True
    """Takes a filler while a tool is slow. Returns False if it cannot be spoken now; try again
    later."""
    report_step: Callable[[McpCallStep], None] = lambda _: None
    "Receives the steps of calls of a client's MCP servers."


@dataclass(frozen=True, slots=True)
class ToolCallBatch:
    """Calls that run at the same time."""

    calls: Sequence[ToolCall]
    server: frozenset[str] = frozenset()
    "Names of the server's own tools."
    remote: Mapping[str, ClientMcpTool] = field(default_factory=dict[str, ClientMcpTool])
    "Tools of a client's MCP servers, by name."
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    "Key under which a call's arguments were reported, by the call's id."
    requests: Mapping[str, str] = field(default_factory=dict[str, str])
    "Id of the approval request that allowed a call, by the call's id."


@dataclass(frozen=True, slots=True)
class McpCallRound:
    """Calls of a client's MCP servers in one round."""

    tools: ToolOffer
    access: ToolAccess
    number: int

    def written(self, delta: CallDelta) -> None:
        """Reports more of a call's arguments.

        A call that needs approval is shown only when complete.
        """
        tool = self.tools.remote.get(delta.name)
        if tool is not None and not tool.needs_approval:
            self.access.report_step(
                McpArgumentsStep(self._key(delta.call_id), tool, delta.arguments)
            )

    def batch(self, written: Sequence[ToolCall], unique: Sequence[ToolCall]) -> ToolCallBatch:
        """Returns the calls as a batch.

        `unique` are the same calls with ids unique in the response.
        """
        ids = zip(written, unique, strict=True)
        keys = {call.call_id: self._key(original.call_id) for original, call in ids}
        return ToolCallBatch(unique, self.tools.server, self.tools.remote, keys)

    async def ask(self, calls: Sequence[ToolCall]) -> None:
        """Asks the client to approve calls, once the turn is confirmed."""
        if calls:
            await self.access.is_confirmed()
        for call in calls:
            self.access.report_step(McpApprovalStep(call, self.tools.remote[call.name]))

    def _key(self, call_id: str) -> str:
        """Returns a key unique in the response: models begin to count their ids again in each
        round."""
        return f"{self.number}/{call_id}"


async def run_calls(batch: ToolCallBatch, access: ToolAccess, silence: SilenceTimer) -> list[str]:
    """Runs calls and returns one result as JSON for each, in order. silence: of the response."""
    calls = batch.calls
    if not all(_may_run_early(call, batch, access) for call in calls):
        await access.is_confirmed()
    for call in calls:
        if (tool := batch.remote.get(call.name)) is not None:
            key = batch.keys.get(call.call_id, call.call_id)
            access.report_step(McpStartStep(key, call, tool, batch.requests.get(call.call_id)))

    def report_result(call: ToolCall, result: str) -> None:
        if call.name in batch.remote:
            access.report_step(McpEndStep(call.call_id, result))

    client_tools = {name: one.tool for name, one in batch.remote.items()}
    work = access.toolbox.run(
        calls, access.context, batch.server, client_tools=client_tools, on_result=report_result
    )
    silence.begin()
    try:
        return await work
    # the user interrupted, and the next response's model must know that the call was begun
    except asyncio.CancelledError:
        for call in calls:
            if call.name not in batch.remote and not _may_run_early(call, batch, access):
                record_call(call, INTERRUPTED, access.record)
        raise


async def run_decided_calls(
    approved: Sequence[ApprovalDecision], access: ToolAccess, silence: SilenceTimer
) -> list[Message]:
    """Runs the calls that the client approved.

    Returns the messages for the model, denied ones included.
    """
    allowed = [one for one in approved if one.approve]
    batch = ToolCallBatch(
        [one.call for one in allowed],
        remote={one.call.name: one.tool for one in allowed},
        requests={one.call.call_id: one.request_id for one in allowed},
    )
    results = await run_calls(batch, access, silence) if allowed else []
    messages: list[Message] = []
    for one in approved:
        if not one.approve:
            messages += call_messages(one.call, refused_result(one.reason))
    for one, result in zip(allowed, results, strict=True):
        messages += call_messages(one.call, result)
    return messages


def call_messages(call: ToolCall, result: str) -> tuple[Message, Message]:
    """Returns a call and its result as the two messages that a model is shown."""
    asked = Message("assistant", tool_calls=(call,))
    return asked, Message("tool", result, call_id=call.call_id)


def record_call(call: ToolCall, result: str, into: Callable[[Item], None]) -> None:
    """Adds a call and its result to a history."""
    arguments = json.dumps(dict(call.arguments))
    into(FunctionCallItem(new_id("item"), call.call_id, call.name, arguments))
    into(FunctionOutputItem(new_id("item"), call.call_id, result))


def _may_run_early(call: ToolCall, batch: ToolCallBatch, access: ToolAccess) -> bool:
    if (remote := batch.remote.get(call.name)) is not None:
        return remote.spec.is_read_only
    return access.toolbox.may_run_early(call, access.context)
