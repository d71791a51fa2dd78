"""Classifies the errors that end a connection or a call."""

import asyncio

from core.errors import EarshotError, first_error
from pipeline.tools.mcp.transport import McpAccessDenied


def is_cancelling() -> bool:
    """Returns True if the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_protocol_failure(error: Exception) -> bool:
    """Returns True if a server answered, but not as an MCP server does."""
    from httpx2 import ConnectError

    return not isinstance(first_error(error), TimeoutError | EarshotError | ConnectError)


def is_refusal(error: Exception) -> bool:
    """Returns True if the server refused us (McpAccessDenied)."""
    if isinstance(error, ExceptionGroup):
        return error.subgroup(McpAccessDenied) is not None
    return isinstance(error, McpAccessDenied)


def lost_connection_codes() -> tuple[int, ...]:
    """Returns the error codes that mean a lost connection.

    INVALID_REQUEST comes from a restarted server, which does not know our session.
    """
    from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST

    return CONNECTION_CLOSED, INVALID_REQUEST


def is_bad_stream(message: str) -> bool:
    """Returns True if the server sent an event that is too large. The server is still connected."""
    # The library has no code of its own for this error.
    return message.startswith("SSE stream failed")
