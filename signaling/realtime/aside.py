"""A second client of a call (`?call_id=`): it is told the same events and may send its own.

That is how a server of somebody's runs the tools of a call that a browser holds. The call is the
browser's: the aside may lag or leave, and nothing of it is lost.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from aiohttp import WSCloseCode, WSMsgType
from aiohttp import web as aioweb

from core.errors import RequestError
from core.queues import Outbox
from signaling.realtime.connection import Connection
from signaling.realtime.socket import EventSocket

logger = logging.getLogger(__name__)

MAX_UNTAKEN_EVENTS = 1024
"Without audio: minutes of a lively call."

MAX_ASIDES = 4
"Of one call; each is told everything."


async def serve_aside(request: aioweb.Request, connection: Connection) -> aioweb.StreamResponse:
    """From upgrade to close; ends with the call. Raises RequestError before the upgrade."""
    ws = EventSocket()
    if not ws.can_prepare(request).ok:
        raise RequestError("This path speaks WebSocket.", code="websocket_expected")
    async with _joined(connection) as told:
        await ws.prepare(request)
        ws.on_too_large = partial(connection.refuse_too_large, told)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_read(ws, connection, told))
            await _write(ws, told)
            is_late = told.overflowed
            code = WSCloseCode.POLICY_VIOLATION if is_late else WSCloseCode.OK
            await ws.close(code=code, message=b"client too slow" if is_late else b"", drain=False)
    return ws


@asynccontextmanager
async def _joined(connection: Connection) -> AsyncIterator[Outbox[str]]:
    if len(connection.asides) >= MAX_ASIDES:
        raise RequestError(
            f"{MAX_ASIDES} clients follow this call already.", code="too_many_asides"
        )
    told: Outbox[str] = Outbox(MAX_UNTAKEN_EVENTS)
    connection.join(told)
    try:
        yield told
    finally:
        connection.asides.discard(told)


async def _write(ws: aioweb.WebSocketResponse, told: Outbox[str]) -> None:
    """Until the call ends, or the client is gone or lags."""
    try:
        async for text in told:
            await ws.send_str(text)
    except ConnectionResetError:
        logger.debug("= aside left")


async def _read(ws: aioweb.WebSocketResponse, connection: Connection, told: Outbox[str]) -> None:
    async for message in ws:
        if message.type is not WSMsgType.TEXT:
            break
        await connection.receive(message.data, told)
    told.close()
