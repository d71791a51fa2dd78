"""Functions that the client runs for the model: as it declares them, both ways."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, UnsetType

from core.errors import RequestError
from core.ports import ToolSpec
from pipeline.arguments import MAX_DEPTH, is_too_deep
from pipeline.settings import NamedTool, SessionSettings, ToolChoice
from signaling.realtime.wire import Sent, WireStruct

MAX_TOOLS = 128
"As the hosted service; each costs a model context."

FunctionName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]

_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}
"Of a function that takes no arguments."

_FRESH = SessionSettings()


class FunctionTool(WireStruct, frozen=True, tag="function", tag_field="type"):
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    "Sent by clients that share their tools with other APIs; models are asked as ever."


class McpTool(Struct, frozen=True, tag="mcp", tag_field="type"):
    """Known, so that the refusal can say so: MCP servers are the server's to connect to."""


class FunctionChoice(WireStruct, frozen=True, tag="function", tag_field="type"):
    name: FunctionName


class McpChoice(Struct, frozen=True, tag="mcp", tag_field="type"):
    """As `McpTool`."""


Tools: TypeAlias = Annotated[list[FunctionTool | McpTool], Meta(max_length=MAX_TOOLS)]
Choice: TypeAlias = Literal["auto", "none", "required"] | FunctionChoice | McpChoice


def own_tools(sent: Sent[Tools], prefix: str) -> tuple[ToolSpec, ...] | None:
    """None: nothing was sent; null takes them back. Raises RequestError."""
    if isinstance(sent, UnsetType):
        return None
    specs: dict[str, ToolSpec] = {}
    for index, tool in enumerate(sent or ()):
        param = f"{prefix}.tools[{index}]"
        if isinstance(tool, McpTool):
            raise RequestError(
                f"'{param}' is of type mcp: the server's configuration connects MCP servers. "
                "Allowed: function.",
                code="unsupported_parameter",
                param=param,
            )
        if tool.name in specs:
            raise RequestError(
                f"Invalid value for '{param}.name': two tools are called {tool.name}.",
                code="invalid_value",
                param=f"{param}.name",
            )
        if is_too_deep(tool.parameters):
            raise RequestError(
                f"'{param}.parameters' has more than {MAX_DEPTH} levels.",
                code="invalid_value",
                param=f"{param}.parameters",
            )
        parameters = _NOTHING if tool.parameters is None else tool.parameters
        specs[tool.name] = ToolSpec(tool.name, tool.description or "", parameters)
    return tuple(specs.values())


def own_choice(sent: Sent[Choice], prefix: str) -> ToolChoice | None:
    """None: nothing was sent. Raises RequestError."""
    match sent:
        case UnsetType():
            return None
        case None:
            return _FRESH.tool_choice
        case FunctionChoice(name=name):
            return NamedTool(name)
        case McpChoice():
            raise RequestError(
                f"'{prefix}.tool_choice' cannot name an MCP server here. "
                "Allowed: auto, none, required, function.",
                code="unsupported_parameter",
                param=f"{prefix}.tool_choice",
            )
        case _:
            return sent


def tools_json(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        }
        for tool in tools
    ]


def choice_json(choice: ToolChoice) -> str | dict[str, Any]:
    return {"type": "function", "name": choice.name} if isinstance(choice, NamedTool) else choice
