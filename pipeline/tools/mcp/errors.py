"""What the end of a connection or a call was about."""

import asyncio

from core.errors import EarshotError
from pipeline.tools.mcp.transport import McpAccessDenied


def is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_broken_off(error: Exception) -> bool:
    """Somebody was there, and did not answer as such a server does."""
    from httpx2 import ConnectError

    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return not isinstance(first, TimeoutError | EarshotError | ConnectError)


def is_refusal(error: Exception) -> bool:
    if isinstance(error, ExceptionGroup):
        return error.subgroup(McpAccessDenied) is not None
    return isinstance(error, McpAccessDenied)


def gone_codes() -> tuple[int, ...]:
    """The second one: it was started anew, and does not know our session any more."""
    from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST

    return CONNECTION_CLOSED, INVALID_REQUEST


def is_bad_stream(message: str) -> bool:
    """The server is there, and answered what is not read: an event that is too large. The library
    has no code of its own for it."""
    return message.startswith("SSE stream failed")
