"""Classification of the errors with which a connection or a call ends."""

import asyncio

from core.errors import EarshotError, first_error
from pipeline.tools.mcp.transport import McpAccessDenied


def is_cancelling() -> bool:
    """Returns whether the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_broken_off(error: Exception) -> bool:
    """Returns whether a server answered, but not as an MCP server does."""
    from httpx2 import ConnectError

    return not isinstance(first_error(error), TimeoutError | EarshotError | ConnectError)


def is_refusal(error: Exception) -> bool:
    """Returns whether the server refused us (McpAccessDenied)."""
    if isinstance(error, ExceptionGroup):
        return error.subgroup(McpAccessDenied) is not None
    return isinstance(error, McpAccessDenied)


def gone_codes() -> tuple[int, ...]:
    """Returns the codes of a lost connection.

    INVALID_REQUEST comes from a server that was restarted and does not know our session.
    """
    from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST

    return CONNECTION_CLOSED, INVALID_REQUEST


def is_bad_stream(message: str) -> bool:
    """Returns whether the server sent an event that is too large to be read.

    The server is still there. The library has no code of its own for this error.
    """
    return message.startswith("SSE stream failed")
