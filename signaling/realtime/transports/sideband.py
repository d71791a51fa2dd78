"""Sideband connection: a second client of a call that receives its events and may send. A server
uses it to run the tools of a call that a browser holds. The call belongs to the browser: it goes on
without loss if the sideband client is slow or leaves."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from aiohttp import WSCloseCode, WSMsgType
from aiohttp import web as aioweb

from core.errors import RequestError
from core.http.client_connection import ClientDisconnected
from signaling.realtime.event_connection import DisconnectReason, EventConnection, SlowClient
from signaling.realtime.transports.event_socket import (
    LAST_CHANCE_S,
    TOO_SLOW,
    EventSocket,
    abort_unread,
)
from signaling.realtime.transports.sideband_queue import SidebandQueue

logger = logging.getLogger(__name__)

QueueT = TypeVar("QueueT", bound=SidebandQueue)

MAX_SIDEBANDS = 4
"Limit per call, as each sideband connection gets all events of OpenAI's API."


async def serve_sideband(
    request: aioweb.Request, connection: EventConnection[Any, Any, QueueT], outbox: QueueT
) -> aioweb.StreamResponse:
    """Serves a sideband connection from upgrade to close; it ends with the call.
    `outbox`: its empty queue. Raises RequestError before the upgrade."""
    ws = EventSocket()
    if not ws.can_prepare(request).ok:
        raise RequestError("This path speaks WebSocket.", code="websocket_expected")
    async with _joined(connection, outbox):
        await ws.open(request)
        ws.on_too_large = partial(connection.refuse_too_large, outbox)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_read(ws, connection, outbox))
            end = await _send_all(ws, outbox, tasks)
            code, reason = TOO_SLOW if end is DisconnectReason.LAGGING else (WSCloseCode.OK, b"")
            await ws.close(code=code, message=reason, drain=False)
        logger.info("= sideband connection ended: %s", end.value)
    await abort_unread(request)
    return ws


@asynccontextmanager
async def _joined(
    connection: EventConnection[Any, Any, QueueT], outbox: QueueT
) -> AsyncIterator[None]:
    """Registers the queue with the call while the context is open. Raises RequestError if the call
    has too many sideband connections."""
    if len(connection.sidebands) >= MAX_SIDEBANDS:
        raise RequestError(
            f"{MAX_SIDEBANDS} clients already follow this call, the limit.", code="too_many_asides"
        )
    connection.join(outbox)
    try:
        yield
    finally:
        connection.sidebands.discard(outbox)


async def _send_all(
    ws: EventSocket, outbox: SidebandQueue, tasks: asyncio.TaskGroup
) -> DisconnectReason:
    """Sends events until the call ends, or the client leaves or is too slow. Returns the reason.
    After the call the client has a last chance to read what is left, unless it was too slow before.
    """
    writing = tasks.create_task(_write(ws, outbox))
    await outbox.closed.wait()
    await asyncio.wait([writing], timeout=0 if outbox.overflowed else LAST_CHANCE_S)
    if not writing.done():
        writing.cancel()
        await asyncio.wait([writing])
        outbox.overflowed |= not outbox.is_abandoned
    if outbox.overflowed:
        return DisconnectReason.LAGGING
    return DisconnectReason.CLIENT if outbox.is_abandoned else DisconnectReason.SERVER


async def _write(ws: EventSocket, outbox: SidebandQueue) -> None:
    try:
        async for text in outbox:
            await ws.send_event(text)
    except ClientDisconnected:
        outbox.abandon()
    except SlowClient:
        outbox.cut()


async def _read(
    ws: EventSocket, connection: EventConnection[Any, Any, QueueT], outbox: QueueT
) -> None:
    async for message in ws:
        match message.type:
            case WSMsgType.TEXT:
                await connection.receive(message.data, outbox)
            case WSMsgType.BINARY:
                await connection.refuse_binary(outbox)
            case _:
                break
    outbox.abandon()
