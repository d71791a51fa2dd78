"""Steps of the calls of a client's MCP servers, while a response is made.

They are reported to the client once the response is delivered.
"""

from dataclasses import dataclass

from engines.base import ToolCall
from pipeline.tools.mcp.tool import ClientMcpTool


@dataclass(frozen=True, slots=True)
class McpArgumentsStep:
    """The model wrote more of the arguments of a call."""

    key: str
    "Key of the call among those that are being written."
    tool: ClientMcpTool
    delta: str


@dataclass(frozen=True, slots=True)
class McpStartStep:
    """A call is complete and is being run."""

    key: str
    call: ToolCall
    "Call with an id that is unique in the response."
    tool: ClientMcpTool
    approval_request_id: str | None = None


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
