"""The tools that a model is offered in one round, and who runs each: the server or the client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from core.errors import RequestError
from core.ports import ToolContext, ToolSpec
from engines.base import LlmOptions, ToolCall
from pipeline.shared.settings import NamedMcpServer, NamedTool, ToolChoice
from pipeline.tools.mcp.session_servers import SessionMcpOffer
from pipeline.tools.mcp.tool import ClientMcpTool, unique_names
from pipeline.tools.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """Tools of one round, and the options that the model is called with."""

    specs: tuple[ToolSpec, ...]
    options: LlmOptions
    "`must_call` is set where the tool choice demands a call."
    server: frozenset[str]
    "Names of tools that the server runs."
    client: frozenset[str]
    "Names of tools that the client runs."
    remote: Mapping[str, ClientMcpTool] = field(default_factory=dict[str, ClientMcpTool])
    "Tools of MCP servers that the client named, by name. The server runs them."

    def split(
        self, calls: Sequence[ToolCall]
    ) -> tuple[list[ToolCall], list[ToolCall], list[ToolCall]]:
        """Splits calls into those that the server runs, those for the client, and those to approve.

        A call of a tool that was not offered goes to the server, which refuses it.
        """
        of_client = [call for call in calls if call.name in self.client]
        to_allow = [call for call in calls if self._needs_approval(call)]
        others = [call for call in calls if call not in of_client and call not in to_allow]
        return others, of_client, to_allow

    def _needs_approval(self, call: ToolCall) -> bool:
        remote = self.remote.get(call.name)
        return remote is not None and remote.needs_approval


class ToolPlan(Protocol):
    """Settings of a response for its tools; a `pipeline.response.plan.ResponsePlan` is one."""

    @property
    def tool_choice(self) -> ToolChoice: ...

    @property
    def tools(self) -> tuple[str, ...] | None:
        """Names of the server's tools that may be used; None: all."""

    @property
    def client_tools(self) -> tuple[ToolSpec, ...]: ...

    @property
    def remote(self) -> SessionMcpOffer | None:
        """Tools of MCP servers that the client named; None: none."""

    @property
    def options(self) -> LlmOptions: ...


def offer_tools(
    plan: ToolPlan, toolbox: Toolbox, context: ToolContext, *, is_first: bool
) -> ToolOffer:
    """Returns the tools to offer. Raises RequestError no_such_tool.

    A client's tool, or one of an MCP server that it named, hides a server's tool of the same name.

    is_first: True in the first round. Only there the tool choice counts: a model that must call a
        tool in each round would never answer.
    """
    choice = plan.tool_choice
    if choice == "none":
        return ToolOffer((), plan.options, frozenset(), frozenset())
    own = {spec.name for spec in plan.client_tools}
    remote = unique_names(plan.remote.tools(), own) if plan.remote else {}
    specs = [
        spec
        for spec in toolbox.specs(context, plan.tools)
        if spec.name not in own and spec.name not in remote
    ]
    clients = (*plan.client_tools, *(one.spec for one in remote.values()))
    specs += (replace(spec, is_clients=True) for spec in clients)
    if is_first:
        specs = _chosen(specs, choice, remote)
    options = replace(plan.options, must_call=is_first and choice != "auto" and bool(specs))
    names = frozenset(spec.name for spec in specs)
    offered = {name: one for name, one in remote.items() if name in names}
    return ToolOffer(tuple(specs), options, names - own - offered.keys(), names & own, offered)


def _chosen(
    specs: list[ToolSpec], choice: ToolChoice, remote: Mapping[str, ClientMcpTool]
) -> list[ToolSpec]:
    """Returns the tools that the tool choice leaves. Raises RequestError no_such_tool."""
    match choice:
        case NamedTool(name=name):
            chosen, what = [spec for spec in specs if spec.name == name], f"tool {name!r}"
        case NamedMcpServer(label=label, name=wanted):
            of_server = {
                name
                for name, one in remote.items()
                if one.label == label and wanted in (None, one.name)
            }
            chosen = [spec for spec in specs if spec.name in of_server]
            what = f"tool {wanted!r} of {label!r}" if wanted else f"tool of {label!r}"
        case _:
            return specs
    if not chosen:
        raise RequestError(f"there is no {what} to choose", code="no_such_tool")
    return chosen
