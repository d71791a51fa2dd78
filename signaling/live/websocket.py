"""GPT-Live over a WebSocket. The session begins with the client's first event, not with the
request."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager

from aiohttp import WSCloseCode, WSMsgType
from aiohttp import web as aioweb

from core.access.named_key import CALLER_KEY, NamedKey, reaches
from core.errors import EarshotError, OverloadedError, RequestError
from core.http.client_connection import ClientDisconnected
from core.ports import Clock, Metrics
from pipeline.session.sessions import Sessions
from signaling.live.client_events import LiveSessionStart, decode
from signaling.live.configuration import configured
from signaling.live.connection import LiveConnection, error_event
from signaling.live.server_events import EventEncoder
from signaling.realtime.event_connection import DisconnectReason, SlowClient
from signaling.realtime.protocol.decode import MAX_EVENT_BYTES, BadEvent, too_large
from signaling.realtime.protocol.validation import params_below
from signaling.realtime.session.settings import SessionConfiguration
from signaling.realtime.transports.event_socket import EventSocket, abort_unread
from signaling.realtime.transports.websocket import CLOSE_CODES

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 10
"""Time in seconds for a valid `session.start`. Until then the connection has no place among the
sessions, so it must not stay open."""

FULL = (WSCloseCode.TRY_AGAIN_LATER, b"server full")
"Close code and reason if there is no room for the session."
_CLOSE = {**CLOSE_CODES, DisconnectReason.EXPIRED: (WSCloseCode.OK, b"expired")}
"Reason of the end -> close code and text. The client was told the time of its expiry."
NOT_STARTED = (WSCloseCode.POLICY_VIOLATION, b"no session.start")
"Close code and reason for a client that starts no session."


class LiveSockets:
    """Sessions over WebSockets that are open now."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[NamedKey | None, LiveConnection]] = {}

    @contextmanager
    def listed(self, connection: LiveConnection) -> Iterator[None]:
        """Lists a session while the context is open, as opened by the caller's key."""
        self._open[connection.id] = (CALLER_KEY.get(), connection)
        try:
            yield
        finally:
            del self._open[connection.id]

    def find(self, session_id: str) -> LiveConnection | None:
        """Returns a session's connection; None if there is none that the caller may reach."""
        opener, connection = self._open.get(session_id, (None, None))
        return connection if reaches(opener) else None


class LiveWebSocket:
    """One client's WebSocket, from the upgrade to the close."""

    def __init__(
        self,
        sessions: Sessions,
        metrics: Metrics,
        clock: Clock,
        sockets: LiveSockets,
        *,
        idle_timeout_s: float,
    ) -> None:
        """`sockets`: the list in which the session is found while it is open."""
        self._sockets = sockets
        self._sessions, self._metrics, self._clock = sessions, metrics, clock
        self._idle_timeout_s = idle_timeout_s
        self._ws = EventSocket()
        self._ws.on_too_large = self._refuse_too_large
        self._encoder = EventEncoder()
        self._connection: LiveConnection | None = None

    async def serve(
        self, request: aioweb.Request, base: SessionConfiguration
    ) -> aioweb.StreamResponse:
        """Serves the client. `base`: what the session's configuration begins with. Raises
        RequestError before the upgrade."""
        ws = self._ws
        if not ws.can_prepare(request).ok:
            raise RequestError(
                "This path speaks WebSocket; POST a session and an SDP offer for WebRTC.",
                code="websocket_expected",
            )
        await ws.open(request)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    started = await self._started(stack, base)
            except TimeoutError:
                started = False
                await ws.close(code=NOT_STARTED[0], message=NOT_STARTED[1])
            except (ClientDisconnected, SlowClient):
                started = False
            if started and self._connection is not None:
                with self._sockets.listed(self._connection):
                    await self._converse(self._connection)
        await abort_unread(request)
        return ws

    async def _started(self, stack: AsyncExitStack, base: SessionConfiguration) -> bool:
        """Reads events until one starts the session, which `stack` then closes. Returns False if
        there will be none."""
        async for text in self._texts():
            event_id = None
            try:
                event = decode(text)
                event_id = event.event_id
                if not isinstance(event, LiveSessionStart):
                    raise RequestError(
                        "The first event must be session.start; wait for session.started.",
                        code="session_not_started",
                        param="type",
                    )
                await self._open(stack, event, base)
            except EarshotError as error:
                self._metrics.count("earshot_errors", code=error.code)
                event_id = error.event_id if isinstance(error, BadEvent) else event_id
                await self._refuse(error, event_id)
                if isinstance(error, OverloadedError):
                    await self._ws.close(code=FULL[0], message=FULL[1])
                    return False
                continue
            return True
        return False

    async def _open(
        self, stack: AsyncExitStack, event: LiveSessionStart, base: SessionConfiguration
    ) -> None:
        """Opens the session. Raises EarshotError; nothing is open then."""
        configuration = configured(base, event.session)
        async with AsyncExitStack() as opening:
            opened = self._sessions.open(
                configuration.session.settings,
                paced_by="server",
                conversation_id=configuration.session.conversation_id,
                door="live",
                secret_holder=configuration.session.secret_holder,
            )
            with params_below("session"):
                session = await opening.enter_async_context(opened)
            self._connection = LiveConnection(
                session,
                configuration,
                self._ws.send_event,
                self._metrics,
                transport="websocket",
                idle_timeout_s=self._idle_timeout_s,
                wall_s=self._clock.wall().timestamp(),
                start_event_id=event.event_id,
            )
            await stack.enter_async_context(opening.pop_all())
            logger.info("= GPT-Live session %s started", session.id)

    async def _converse(self, connection: LiveConnection) -> None:
        """Connects the WebSocket to the session until one of them ends."""
        self._ws.on_too_large = connection.refuse_too_large
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read(connection), name="live-read")
            end = await connection.run()
            code, reason = _CLOSE[end]
            await self._ws.close(
                code=code, message=reason, drain=end is not DisconnectReason.LAGGING
            )
        logger.info("= GPT-Live session ended: %s", end.value)

    async def _read(self, connection: LiveConnection) -> None:
        async for message in self._ws:
            match message.type:
                case WSMsgType.TEXT:
                    await connection.receive(message.data)
                case WSMsgType.BINARY:
                    await connection.refuse_binary()
                case _:
                    break
        is_lost = self._ws.close_code not in (WSCloseCode.OK, WSCloseCode.GOING_AWAY)
        connection.close(DisconnectReason.LOST if is_lost else DisconnectReason.CLIENT)

    async def _texts(self) -> AsyncIterator[str]:
        """Yields the texts before the session has started."""
        async for message in self._ws:
            match message.type:
                case WSMsgType.TEXT:
                    yield message.data
                case WSMsgType.BINARY:
                    error = BadEvent("Binary frames are not allowed.", code="invalid_json")
                    await self._refuse(error, None)
                case _:
                    return

    async def _refuse(self, error: EarshotError, event_id: str | None) -> None:
        await self._ws.send_event(self._encoder.text(error_event(error, event_id)))

    async def _refuse_too_large(self) -> None:
        await self._refuse(too_large(MAX_EVENT_BYTES), None)
