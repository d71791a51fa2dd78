"""Realtime API over a WebSocket: the client sends audio as events and paces its own playout."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from aiohttp import WSCloseCode, WSMsgType
from aiohttp import web as aioweb

from core.errors import RequestError
from core.net.connection_stats import ConnectionStats
from core.ports import Metrics
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.tools.home import Home
from signaling.call_stats import EVERY_S, count_quality
from signaling.realtime.client_secrets import ClientSecret
from signaling.realtime.connection import RealtimeConnection
from signaling.realtime.event_connection import DisconnectReason
from signaling.realtime.protocol.beta import is_beta
from signaling.realtime.protocol.server_events import RoundTripMeter
from signaling.realtime.session.offer import SessionSettingsFactory, configuration_of
from signaling.realtime.session.settings import SessionConfiguration
from signaling.realtime.transports.event_socket import TOO_SLOW, EventSocket, abort_unread

logger = logging.getLogger(__name__)

CLOSE_CODES: Mapping[DisconnectReason, tuple[int, bytes]] = {
    DisconnectReason.CLIENT: (WSCloseCode.OK, b""),
    DisconnectReason.HUNG_UP: (WSCloseCode.OK, b""),
    DisconnectReason.LOST: (WSCloseCode.OK, b""),
    DisconnectReason.CLOSED: (WSCloseCode.OK, b""),
    DisconnectReason.IDLE: (WSCloseCode.OK, b"idle"),
    DisconnectReason.EXPIRED: (WSCloseCode.POLICY_VIOLATION, b"the client secret expired"),
    DisconnectReason.LAGGING: TOO_SLOW,
    DisconnectReason.SERVER: (WSCloseCode.SERVICE_RESTART, b"going away"),
}
"Reason of the end -> close code and text."


async def serve(
    request: aioweb.Request,
    sessions: Sessions,
    metrics: Metrics,
    *,
    home: Home | None,
    idle_timeout_s: float,
    initial_settings: SessionSettingsFactory,
    client_secret: ClientSecret | None = None,
) -> aioweb.StreamResponse:
    """Serves one client from upgrade to close. Raises RequestError or OverloadedError before the
    upgrade."""
    configuration = configuration_of(request.query, initial_settings, client_secret=client_secret)
    configuration = replace(configuration, is_beta=is_beta(request.headers))
    ws = EventSocket(autoping=False)  # pongs are read here, to measure the round trip
    if not ws.can_prepare(request).ok:
        raise RequestError(
            "This path speaks WebSocket; POST an SDP offer for WebRTC.", code="websocket_expected"
        )
    async with sessions.open(
        configuration.settings,
        paced_by="client",
        conversation_id=configuration.conversation_id,
        secret_holder=configuration.secret_holder,
    ) as session:
        await ws.open(request)
        end = await _converse(ws, session, configuration, metrics, home, idle_timeout_s)
        logger.info("= session %s ended: %s", session.id, end.value)
    await abort_unread(request)
    return ws


async def _converse(
    ws: EventSocket,
    session: Session,
    configuration: SessionConfiguration,
    metrics: Metrics,
    home: Home | None,
    idle_timeout_s: float,
) -> DisconnectReason:
    """Connects the WebSocket to the session until one of them ends; returns the reason."""
    connection = RealtimeConnection(
        session,
        configuration,
        ws.send_event,
        metrics,
        transport="websocket",
        idle_timeout_s=idle_timeout_s,
        home=home,
    )
    ws.on_too_large = connection.refuse_too_large
    async with asyncio.TaskGroup() as tasks:
        round_trip = RoundTripMeter(ws)
        tasks.create_task(_read(ws, connection, round_trip, metrics), name=f"read-{session.id}")
        pings = tasks.create_task(_send_pings(round_trip, connection), name=f"quality-{session.id}")
        end = await connection.run()
        pings.cancel()
        code, reason = CLOSE_CODES[end]
        await ws.close(code=code, message=reason, drain=end is not DisconnectReason.LAGGING)
    return end


async def _send_pings(round_trip: RoundTripMeter, connection: RealtimeConnection) -> None:
    """Sends pings at regular intervals while the client wants quality reports; `_read` gets the
    pongs."""
    with suppress(ConnectionError):
        while True:
            await asyncio.sleep(EVERY_S)
            if connection.wants_quality:
                await round_trip.ping()


async def _read(
    ws: aioweb.WebSocketResponse,
    connection: RealtimeConnection,
    round_trip: RoundTripMeter,
    metrics: Metrics,
) -> None:
    """Reads the client's messages until the WebSocket closes."""
    async for message in ws:
        match message.type:
            case WSMsgType.TEXT:
                await connection.receive(message.data)
            case WSMsgType.BINARY:
                await connection.refuse_binary()
            case WSMsgType.PING:
                await ws.pong(message.data)
            case WSMsgType.PONG:
                if (round_trip_ms := round_trip.answered(message.data)) is not None:
                    quality = ConnectionStats("websocket", round_trip_ms, protocol="tcp")
                    count_quality(quality, metrics)
                    await connection.send_quality(quality)
            case _:
                break
    connection.close(DisconnectReason.CLIENT)
