"""Offers tools to the model in each round of generation, and runs its calls.

The server runs a call, leaves it to the client, or asks the client to approve it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from core.conversation.ids import new_id
from core.conversation.items import FunctionCallItem, FunctionOutputItem, Item
from core.errors import RequestError
from core.ports import ToolContext, ToolSpec
from engines.base import CallDelta, LlmOptions, Message, ToolCall
from pipeline.shared.settings import NamedMcpServer, NamedTool, ToolChoice
from pipeline.tools.calls.results import INTERRUPTED, refused_result
from pipeline.tools.fillers import Fillers, SilenceTimer
from pipeline.tools.mcp.call_steps import (
    McpApprovalStep,
    McpArgumentsStep,
    McpCallStep,
    McpEndStep,
    McpStartStep,
)
from pipeline.tools.mcp.session_servers import SessionMcpOffer
from pipeline.tools.mcp.tool import ApprovalDecision, ClientMcpTool, unique_names
from pipeline.tools.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """Tools of one round, and the options for the call of the model."""

    specs: tuple[ToolSpec, ...]
    options: LlmOptions
    "Options of the call; `must_call` is True if the tool choice demands a tool call."
    server: frozenset[str]
    "Names of tools that the server runs."
    client: frozenset[str]
    "Names of tools that the client runs."
    mcp_tools: Mapping[str, ClientMcpTool] = field(default_factory=dict[str, ClientMcpTool])
    "Tools of MCP servers that the client named, by name. The server runs them."

    def split(
        self, calls: Sequence[ToolCall]
    ) -> tuple[list[ToolCall], list[ToolCall], list[ToolCall]]:
        """Splits calls: (calls for the server, calls for the client, calls to approve).

        A call of a tool that was not offered goes to the server, which refuses it.
        """
        of_client = [call for call in calls if call.name in self.client]
        to_approve = [call for call in calls if self._needs_approval(call)]
        others = [call for call in calls if call not in of_client and call not in to_approve]
        return others, of_client, to_approve

    def _needs_approval(self, call: ToolCall) -> bool:
        tool = self.mcp_tools.get(call.name)
        return tool is not None and tool.needs_approval


class ToolPlan(Protocol):
    """Settings of a response for its tools, such as `pipeline.response.plan.ResponsePlan`."""

    @property
    def tool_choice(self) -> ToolChoice: ...

    @property
    def tools(self) -> tuple[str, ...] | None:
        """Names of the server's tools that may be used; None: all."""

    @property
    def client_tools(self) -> tuple[ToolSpec, ...]: ...

    @property
    def mcp_offer(self) -> SessionMcpOffer | None:
        """Tools of MCP servers that the client named; None: none."""

    @property
    def options(self) -> LlmOptions: ...


def offer_tools(
    plan: ToolPlan, toolbox: Toolbox, context: ToolContext, *, is_first: bool
) -> ToolOffer:
    """Returns the tools to offer in one round. Raises RequestError no_such_tool.

    A client's tool, or one of an MCP server that it named, hides a server's tool of the same name.

    plan: settings of the response. context: the conversation and language of the calls.
    is_first: True in the first round.
    """
    choice = plan.tool_choice
    if choice == "none":
        return ToolOffer((), plan.options, frozenset(), frozenset())
    own = {spec.name for spec in plan.client_tools}
    mcp_tools = unique_names(plan.mcp_offer.tools(), own) if plan.mcp_offer else {}
    specs = [
        spec
        for spec in toolbox.specs(context, plan.tools)
        if spec.name not in own and spec.name not in mcp_tools
    ]
    clients = (*plan.client_tools, *(tool.spec for tool in mcp_tools.values()))
    specs += (replace(spec, is_clients=True) for spec in clients)
    # Only the first round: a model that must call a tool in each round would never answer.
    if is_first:
        specs = _apply_tool_choice(specs, choice, mcp_tools)
    options = replace(plan.options, must_call=is_first and choice != "auto" and bool(specs))
    names = frozenset(spec.name for spec in specs)
    offered = {name: mcp_tool for name, mcp_tool in mcp_tools.items() if name in names}
    return ToolOffer(tuple(specs), options, names - own - offered.keys(), names & own, offered)


def _apply_tool_choice(
    specs: list[ToolSpec], choice: ToolChoice, mcp_tools: Mapping[str, ClientMcpTool]
) -> list[ToolSpec]:
    """Returns the tools that the tool choice leaves. Raises RequestError no_such_tool."""
    match choice:
        case NamedTool(name=name):
            chosen, subject = [spec for spec in specs if spec.name == name], f"tool {name!r}"
        case NamedMcpServer(label=label, name=wanted):
            of_server = {
                name
                for name, mcp_tool in mcp_tools.items()
                if mcp_tool.label == label and wanted in (None, mcp_tool.name)
            }
            chosen = [spec for spec in specs if spec.name in of_server]
            subject = f"tool {wanted!r} of {label!r}" if wanted else f"tool of {label!r}"
        case _:
            return specs
    if not chosen:
        raise RequestError(f"there is no {subject} to choose", code="no_such_tool")
    return chosen


@dataclass(frozen=True, slots=True)
class ToolAccess:
    """Access of a response to tools, history, fillers and events."""

    toolbox: Toolbox
    context: ToolContext
    wait_until_confirmed: Callable[[], Awaitable[object]]
    "Waits until the turn is confirmed; awaited before a tool that changes anything runs."
    record: Callable[[Item], None]
    "Adds a call or a result to the history."
    fillers: Fillers = field(default_factory=Fillers)
    say: Callable[[str], bool] = lambda _: True
    "Speaks a filler while a tool is slow. Returns False if it cannot be spoken yet."
    report_step: Callable[[McpCallStep], None] = lambda _: None
    "Reports a step of a call of a client's MCP server."


@dataclass(frozen=True, slots=True)
class ToolCallBatch:
    """Calls that run at the same time, and the tools that they may call."""

    calls: Sequence[ToolCall]
    server: frozenset[str] = frozenset()
    "Names of the server's own tools."
    mcp_tools: Mapping[str, ClientMcpTool] = field(default_factory=dict[str, ClientMcpTool])
    "Tools of a client's MCP servers, by name."
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    "Call id -> key under which the call's arguments were reported."
    requests: Mapping[str, str] = field(default_factory=dict[str, str])
    "Call id -> id of the approval request that allowed the call."


@dataclass(frozen=True, slots=True)
class McpCallRound:
    """Reports the calls of a client's MCP servers in one round."""

    tools: ToolOffer
    access: ToolAccess
    number: int
    "Number of the round within the response, from 0."

    def report_arguments(self, delta: CallDelta) -> None:
        """Reports that the model wrote more of a call's arguments.

        A call that needs approval is reported only when it is complete.
        """
        tool = self.tools.mcp_tools.get(delta.name)
        if tool is not None and not tool.needs_approval:
            self.access.report_step(
                McpArgumentsStep(self._key(delta.call_id), tool, delta.arguments)
            )

    def batch(self, written: Sequence[ToolCall], unique: Sequence[ToolCall]) -> ToolCallBatch:
        """Returns the calls as a batch.

        written: calls as the model wrote them. unique: the same calls with ids that are unique in
        the response.
        """
        ids = zip(written, unique, strict=True)
        keys = {call.call_id: self._key(original.call_id) for original, call in ids}
        return ToolCallBatch(unique, self.tools.server, self.tools.mcp_tools, keys)

    async def ask(self, calls: Sequence[ToolCall]) -> None:
        """Asks the client to approve calls, once the turn is confirmed."""
        if calls:
            await self.access.wait_until_confirmed()
        for call in calls:
            self.access.report_step(McpApprovalStep(call, self.tools.mcp_tools[call.name]))

    def _key(self, call_id: str) -> str:
        """Returns a key that is unique in the response: models repeat their ids in later rounds."""
        return f"{self.number}/{call_id}"


async def run_calls(batch: ToolCallBatch, access: ToolAccess, silence: SilenceTimer) -> list[str]:
    """Runs calls at the same time and returns one result as JSON for each, in order.

    It waits for the confirmation of the turn first, unless all calls are read-only.
    """
    calls = batch.calls
    if not all(_may_run_early(call, batch, access) for call in calls):
        await access.wait_until_confirmed()
    for call in calls:
        if (tool := batch.mcp_tools.get(call.name)) is not None:
            key = batch.keys.get(call.call_id, call.call_id)
            access.report_step(McpStartStep(key, call, tool, batch.requests.get(call.call_id)))

    def report_result(call: ToolCall, result: str) -> None:
        if call.name in batch.mcp_tools:
            access.report_step(McpEndStep(call.call_id, result))

    client_tools = {name: mcp_tool.tool for name, mcp_tool in batch.mcp_tools.items()}
    work = access.toolbox.run(
        calls, access.context, batch.server, client_tools=client_tools, on_result=report_result
    )
    silence.begin()
    try:
        return await work
    except asyncio.CancelledError:
        # The user interrupted. The model of the next response must know that the calls were begun.
        for call in calls:
            if call.name not in batch.mcp_tools and not _may_run_early(call, batch, access):
                record_call(call, INTERRUPTED, access.record)
        raise


async def run_decided_calls(
    decisions: Sequence[ApprovalDecision], access: ToolAccess, silence: SilenceTimer
) -> list[Message]:
    """Runs the calls that the client approved, and returns the messages of all decided calls.

    decisions: also those about calls that the client denied.
    """
    allowed = [decision for decision in decisions if decision.approve]
    batch = ToolCallBatch(
        [decision.call for decision in allowed],
        mcp_tools={decision.call.name: decision.tool for decision in allowed},
        requests={decision.call.call_id: decision.request_id for decision in allowed},
    )
    results = await run_calls(batch, access, silence) if allowed else []
    messages: list[Message] = []
    for decision in decisions:
        if not decision.approve:
            messages += call_messages(decision.call, refused_result(decision.reason))
    for decision, result in zip(allowed, results, strict=True):
        messages += call_messages(decision.call, result)
    return messages


def call_messages(call: ToolCall, result: str) -> tuple[Message, Message]:
    """Returns a call and its result as two messages for a model."""
    call_message = Message("assistant", tool_calls=(call,))
    return call_message, Message("tool", result, call_id=call.call_id)


def record_call(call: ToolCall, result: str, into: Callable[[Item], None]) -> None:
    """Adds a call and its result to a history. into: adds an item."""
    arguments = json.dumps(dict(call.arguments))
    into(FunctionCallItem(new_id("item"), call.call_id, call.name, arguments))
    into(FunctionOutputItem(new_id("item"), call.call_id, result))


def _may_run_early(call: ToolCall, batch: ToolCallBatch, access: ToolAccess) -> bool:
    if (tool := batch.mcp_tools.get(call.name)) is not None:
        return tool.spec.is_read_only
    return access.toolbox.may_run_early(call, access.context)
