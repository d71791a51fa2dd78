"""Steps of the calls of a client's MCP servers during a response.

The client gets them as events when the response is delivered.
"""

from dataclasses import dataclass

from engines.base import ToolCall
from pipeline.tools.mcp.tool import ClientMcpTool


@dataclass(frozen=True, slots=True)
class McpArgumentsStep:
    """The model wrote more of the arguments of a call."""

    key: str
    "Key of the call, unique in the response (see `McpCallRound`)."
    tool: ClientMcpTool
    delta: str
    "Further arguments, a piece of JSON."


@dataclass(frozen=True, slots=True)
class McpStartStep:
    """A call is complete and begins to run."""

    key: str
    "Key under which its arguments were reported."
    call: ToolCall
    "Call with an id that is unique in the response."
    tool: ClientMcpTool
    approval_request_id: str | None = None
    "Id of the request that allowed it; None: it needed no approval."


@dataclass(frozen=True, slots=True)
class McpEndStep:
    """A call has ended."""

    call_id: str
    result: str
    "Result as the model sees it, in JSON."


@dataclass(frozen=True, slots=True)
class McpApprovalStep:
    """A call needs the client's approval; the response ends with it."""

    call: ToolCall
    tool: ClientMcpTool


McpCallStep = McpArgumentsStep | McpStartStep | McpEndStep | McpApprovalStep
