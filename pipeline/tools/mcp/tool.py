"""Tools of MCP servers that a client named, with names that are unique for the model."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from core.conversation.items import McpToolDefinition
from core.ports import ToolProvider, ToolSpec
from engines.base import ToolCall
from pipeline.shared.mcp_servers import ClientMcpServer
from pipeline.tools.toolbox import Tool

MAX_TOOLS = 128
"Most tools of all servers in one response. Each takes room in the context window."

MAX_DESCRIPTION_CHARS = 1000

MAX_LISTED_BYTES = 40_000
"Most bytes of descriptions and schemas in one event: some data channels allow at most 64 KiB."


@dataclass(frozen=True, slots=True)
class ClientMcpTool:
    """A tool of an MCP server that a client named."""

    tool: Tool
    label: str
    "Label that the client gave the server."
    name: str
    "The server's own name of the tool."
    needs_approval: bool

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """The client's decision about a call that needed approval."""

    request_id: str
    "Id of the item that asked for approval."
    call: ToolCall
    tool: ClientMcpTool
    approve: bool
    reason: str = ""
    "The client's reason, for the model."


def client_tools_of(
    server: ClientMcpServer, provider: ToolProvider, specs: Iterable[tuple[ToolSpec, str]]
) -> tuple[ClientMcpTool, ...]:
    """Returns the tools that the client allows. specs: (tool, the server's own name) of each."""
    found: list[ClientMcpTool] = []
    for spec, name in specs:
        is_read_only = spec.is_read_only
        if server.allowed.matches(name, is_read_only=is_read_only):
            shown = replace(spec, description=_description(spec, server))
            needs = server.approval.is_needed(name, is_read_only=is_read_only)
            found.append(ClientMcpTool(Tool(shown, provider, spec.name), server.label, name, needs))
    return tuple(found)


def unique_names(
    tools: Iterable[ClientMcpTool], taken: Collection[str]
) -> dict[str, ClientMcpTool]:
    """Returns at most MAX_TOOLS tools by unique names, which are not in `taken`.

    A tool whose name is taken gets its fallback name, which begins with the server's label.
    """
    by_name: dict[str, ClientMcpTool] = {}
    for tool in tools:
        for name in (tool.spec.name, tool.spec.fallback_name):
            if name not in taken and name not in by_name and len(by_name) < MAX_TOOLS:
                by_name[name] = tool if name == tool.spec.name else _renamed(tool, name)
                break
    return by_name


def tool_definitions(tools: Iterable[ClientMcpTool]) -> tuple[McpToolDefinition, ...]:
    """Returns the tools for an event. Schemas and descriptions that do not fit are left out."""
    shown: list[McpToolDefinition] = []
    left_bytes = MAX_LISTED_BYTES
    for tool in tools:
        spec = tool.spec
        description, schema = spec.description, spec.parameters
        size_bytes = len(description.encode("utf-8", "replace"))
        if size_bytes > left_bytes:
            description, size_bytes = "", 0
        left_bytes -= size_bytes
        size_bytes = len(json.dumps(schema))
        if size_bytes > left_bytes:
            schema, size_bytes = {"type": "object"}, 0
        left_bytes -= size_bytes
        shown.append(McpToolDefinition(tool.name, description, schema, spec.is_read_only))
    return tuple(shown)


def _renamed(client_tool: ClientMcpTool, name: str) -> ClientMcpTool:
    tool = client_tool.tool
    return replace(client_tool, tool=Tool(replace(tool.spec, name=name), tool.provider, tool.name))


def _description(spec: ToolSpec, server: ClientMcpServer) -> str:
    """Returns a tool's description, with the client's description of its server.

    Each tool needs both, because a model sees nothing else of the server.
    """
    if not server.description:
        return spec.description
    whole = f"{spec.description}\n{server.label}: {server.description}"
    return whole[:MAX_DESCRIPTION_CHARS]
