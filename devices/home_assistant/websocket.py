"""One authorized WebSocket to Home Assistant: sends commands, receives their results and events."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from core.errors import OverloadedError
from devices.home_assistant.errors import HomeAssistantAccessError, HomeAssistantUnreachable
from devices.home_assistant.protocol import (
    MAX_FRAME_BYTES,
    CommandEncoder,
    SubscriptionEvent,
    decode,
    decode_greeting,
)
from devices.home_assistant.settings import HomeAssistantSettings

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
"Limit for the connection, and again for the authorization. Home Assistant's own limit is 10 s."

PING_EVERY_S = 30.0
"Interval of pings: only a ping notices that a cable was pulled."

PONG_TIMEOUT_S = 10.0

MAX_PENDING = 64
"Limit of the commands that wait for their answer."

FORBIDDEN = (401, 403)
"""HTTP statuses that refuse the WebSocket. 401: a proxy wants a password. 403: Home Assistant has
banned this address."""


class HomeAssistantWebSocket:
    """One connection, which can be used while `run` is running. on_event: called for each event of
    a subscription."""

    def __init__(
        self, ws: ClientWebSocketResponse, on_event: Callable[[SubscriptionEvent], None]
    ) -> None:
        self._ws, self._on_event = ws, on_event
        self._commands = CommandEncoder()
        self._pending: dict[int, asyncio.Future[Any]] = {}

    async def call(self, kind: str, **fields: object) -> object:
        """Sends one command and returns its result. It has no time limit of its own.

        Raises HomeAssistantCommandError with Home Assistant's own error, HomeAssistantUnreachable
        when the connection is lost meanwhile, and OverloadedError when MAX_PENDING commands wait.
        """
        return (await self._send_command(kind, fields))[1]

    async def subscribe(self, kind: str, **fields: object) -> int:
        """Subscribes and returns the subscription's id, with which it can be ended. Raises as
        `call` does."""
        return (await self._send_command(kind, fields))[0]

    async def _send_command(self, kind: str, fields: Mapping[str, object]) -> tuple[int, object]:
        if len(self._pending) >= MAX_PENDING:
            raise OverloadedError(
                f"{MAX_PENDING} commands wait for Home Assistant", retry_after_s=1
            )
        number, frame = self._commands.encode(kind, fields)
        waiting = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            await self._ws.send_str(frame)
            return number, await waiting
        except (ConnectionError, RuntimeError) as error:
            raise HomeAssistantUnreachable("the connection is lost") from error
        finally:
            del self._pending[number]

    async def run(self) -> None:
        """Reads messages until the connection ends.

        Raises HomeAssistantUnreachable or RemoteProtocolError in an ExceptionGroup.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._ping(), name="home-assistant-ping")
                await self._read()
        finally:
            for waiting in self._pending.values():
                if not waiting.done():
                    waiting.set_exception(HomeAssistantUnreachable("the connection is lost"))

    async def _read(self) -> None:
        async for message in self._ws:
            if message.type is not WSMsgType.TEXT:
                continue
            for reply in decode(message.data):
                if isinstance(reply, SubscriptionEvent):
                    self._on_event(reply)
                elif (waiting := self._pending.get(reply.id)) is not None and not waiting.done():
                    if reply.error is None:
                        waiting.set_result(reply.value)
                    else:
                        waiting.set_exception(reply.error)
        raise HomeAssistantUnreachable(f"it closed the connection ({self._ws.close_code})")

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_EVERY_S)
            try:
                async with asyncio.timeout(PONG_TIMEOUT_S):
                    await self.call("ping")
            except TimeoutError:
                raise HomeAssistantUnreachable("no pong") from None


@asynccontextmanager
async def connect(
    http: ClientSession,
    settings: HomeAssistantSettings,
    on_event: Callable[[SubscriptionEvent], None],
) -> AsyncIterator[HomeAssistantWebSocket]:
    """Connects and authorizes; yields the connection. The caller has to run its `run`.

    Raises HomeAssistantAccessError, HomeAssistantUnreachable, RemoteProtocolError and aiohttp's
    ClientError.
    """
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            ws = await http.ws_connect(
                settings.websocket_url,
                max_msg_size=MAX_FRAME_BYTES,
                ssl=settings.verify_tls,
                autoping=True,
            )
    except WSServerHandshakeError as error:
        if error.status in FORBIDDEN:
            raise HomeAssistantAccessError(
                f"HTTP {error.status}: {_FORBIDDEN_REASONS[error.status]}"
            ) from None
        raise HomeAssistantUnreachable(f"HTTP {error.status} instead of a WebSocket") from None
    except TimeoutError:
        raise HomeAssistantUnreachable(f"no connection within {CONNECT_TIMEOUT_S:g} s") from None
    async with ws:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await _authorize(ws, settings.token)
        except TimeoutError:
            raise HomeAssistantUnreachable(
                f"not authorized within {CONNECT_TIMEOUT_S:g} s"
            ) from None
        yield HomeAssistantWebSocket(ws, on_event)


_FORBIDDEN_REASONS = {
    401: "it wants another password",
    403: "it has banned this address (ip_bans.yaml)",
}


async def _authorize(ws: ClientWebSocketResponse, token: str) -> None:
    kind, text = decode_greeting(await _text(ws))
    if kind == "auth_required":
        await ws.send_str(msgspec.json.encode({"type": "auth", "access_token": token}).decode())
        kind, text = decode_greeting(await _text(ws))
    if kind == "auth_invalid":
        raise HomeAssistantAccessError(text.replace(token, "********") or "the token is not valid")
    if kind != "auth_ok":
        raise HomeAssistantUnreachable(f"it said {kind} in place of auth_ok")
    logger.info("= home assistant: connected, version %s", text)


async def _text(ws: ClientWebSocketResponse) -> str:
    message = await ws.receive()
    if message.type is not WSMsgType.TEXT:
        raise HomeAssistantUnreachable("it closed the connection before it was authorized")
    return str(message.data)
