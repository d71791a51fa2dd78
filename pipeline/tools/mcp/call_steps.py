"""What becomes of the calls of a client's MCP servers while an answer is made; told to the client
once the answer is given."""

from dataclasses import dataclass

from engines.base import ToolCall
from pipeline.tools.mcp.tool import ClientMcpTool


@dataclass(frozen=True, slots=True)
class McpArgumentsStep:
    """More of the arguments of a call that will be made."""

    key: str
    "Of the call, among those that are being written."
    tool: ClientMcpTool
    delta: str


@dataclass(frozen=True, slots=True)
class McpStartStep:
    """It is whole, and is being made."""

    key: str
    call: ToolCall
    "With an id that no other call of the answer has."
    tool: ClientMcpTool
    approval_request_id: str | None = None


@dataclass(frozen=True, slots=True)
class McpEndStep:
    call_id: str
    result: str
    "As the model sees it."


@dataclass(frozen=True, slots=True)
class McpApprovalStep:
    """The client has to allow it; the answer ends."""

    call: ToolCall
    tool: ClientMcpTool


McpCallStep = McpArgumentsStep | McpStartStep | McpEndStep | McpApprovalStep
