"""Client's tools in JSON: functions that it runs itself, and MCP servers; parsing and display."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, UnsetType

from core.errors import RequestError
from core.ports import ToolSpec
from pipeline.shared.mcp_servers import ClientMcpServer
from pipeline.shared.settings import NamedMcpServer, NamedTool, SessionSettings, ToolChoice
from pipeline.tools.calls.arguments import MAX_DEPTH, is_too_deep
from signaling.realtime.protocol.structs import OptionalField, StrictStruct
from signaling.realtime.session.mcp import McpChoice, McpTool, remote_server, server_json

MAX_TOOLS = 128
"Limit of OpenAI's service. Each tool takes space in the model's context window."

FunctionName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
"Parameters of a function without arguments."

_DEFAULTS = SessionSettings()
"Settings of a session whose client sent none. A null from a client resets a field to them."


class FunctionTool(StrictStruct, frozen=True, tag="function", tag_field="type"):
    """Function that the client runs itself."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    "Accepted without effect: clients that share tools with other APIs send it."


class FunctionChoice(StrictStruct, frozen=True, tag="function", tag_field="type"):
    """Tool choice: this function."""

    name: FunctionName


ToolDefinitions: TypeAlias = Annotated[list[FunctionTool | McpTool], Meta(max_length=MAX_TOOLS)]
ToolChoiceObject: TypeAlias = Literal["auto", "none", "required"] | FunctionChoice | McpChoice


@dataclass(frozen=True, slots=True)
class ClientToolSet:
    """Client's tools for the model: functions that the client runs, MCP servers that we call."""

    functions: tuple[ToolSpec, ...] = ()
    servers: tuple[ClientMcpServer, ...] = ()


def read_client_tools(sent: OptionalField[ToolDefinitions], prefix: str) -> ClientToolSet | None:
    """Converts a client's tools; None if nothing was sent, an empty set for null. Raises
    RequestError."""
    if isinstance(sent, UnsetType):
        return None
    specs: dict[str, ToolSpec] = {}
    servers: dict[str, ClientMcpServer] = {}
    for index, tool in enumerate(sent or ()):
        param = f"{prefix}.tools[{index}]"
        if isinstance(tool, McpTool):
            if tool.server_label in servers:
                raise RequestError(
                    f"Invalid value for '{param}.server_label': two MCP servers have the label"
                    f" {tool.server_label}.",
                    code="invalid_value",
                    param=f"{param}.server_label",
                )
            # A session's own checks add the prefix to the path of the field; those of a response do
            # not.
            at = param if prefix == "response" else f"tools[{index}]"
            servers[tool.server_label] = remote_server(tool, param, at)
            continue
        if tool.name in specs:
            raise RequestError(
                f"Invalid value for '{param}.name': two tools have the name {tool.name}.",
                code="invalid_value",
                param=f"{param}.name",
            )
        if is_too_deep(tool.parameters):
            raise RequestError(
                f"'{param}.parameters' has more than {MAX_DEPTH} levels.",
                code="invalid_value",
                param=f"{param}.parameters",
            )
        parameters = _NO_PARAMETERS if tool.parameters is None else tool.parameters
        specs[tool.name] = ToolSpec(tool.name, tool.description or "", parameters)
    return ClientToolSet(tuple(specs.values()), tuple(servers.values()))


def own_choice(sent: OptionalField[ToolChoiceObject]) -> ToolChoice | None:
    """Converts the tool choice; None if nothing was sent."""
    match sent:
        case UnsetType():
            return None
        case None:
            return _DEFAULTS.tool_choice
        case FunctionChoice(name=name):
            return NamedTool(name)
        case McpChoice(server_label=label, name=name):
            return NamedMcpServer(label, name)
        case _:
            return sent


def tools_json(
    tools: Sequence[ToolSpec], servers: Sequence[ClientMcpServer]
) -> list[dict[str, Any]]:
    """Returns functions and MCP servers as clients see them."""
    functions = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        }
        for tool in tools
    ]
    return [*functions, *(server_json(server) for server in servers)]


def choice_json(choice: ToolChoice) -> str | dict[str, Any]:
    """Returns the tool choice as clients see it."""
    match choice:
        case NamedTool(name=name):
            return {"type": "function", "name": name}
        case NamedMcpServer(label=label, name=name):
            return {"type": "mcp", "server_label": label, "name": name}
        case _:
            return choice
