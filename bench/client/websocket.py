"""Realtime API over a WebSocket: audio as Base64 in events, paced by the client."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiohttp import (
    ClientConnectionError,
    ClientSession,
    ClientWebSocketResponse,
    WSMsgType,
    WSServerHandshakeError,
)
from msgspec.json import encode

from bench.client.connection_stats import ConnectionReport, quality_of
from bench.client.http import Address, http_session, reaching, refusal
from bench.client.microphone import RATE_HZ, Microphone
from bench.client.realtime import (
    ClientTransport,
    EventInbox,
    Json,
    OnSound,
    ReceivedEvent,
    SessionRequest,
    background,
    decoded,
    extended,
    greeted,
    wished,
)
from core.audio import PTIME_MS, AudioFrame
from core.connection_stats import ConnectionStats
from core.queues import Outbox
from media.pcm import from_bytes, to_bytes

MAX_UNSENT_EVENTS = 500
"""Limit of unsent events, 10 s of audio: a server that is slower than that cannot follow live
speech."""

MAX_EVENT_BYTES = 20 * 1024 * 1024
"The API allows 15 MiB of audio per event, and Base64 makes it a third more."

_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "ZWFyc2hvdCBhc2tzIHdoeQ==",
}


class WebSocketClient:
    """A `RealtimeClient` over a WebSocket."""

    transport: ClientTransport = "ws"

    def __init__(self, ws: ClientWebSocketResponse, on_sound: OnSound) -> None:
        self._clock = asyncio.get_running_loop().time
        self.mouth = Microphone(self._clock)
        self.inbox = EventInbox(self._clock)
        self._ws, self._on_sound = ws, on_sound
        self._unsent: Outbox[str] = Outbox(MAX_UNSENT_EVENTS)
        self._heard = 0

    @property
    def end(self) -> str:
        return self.inbox.end

    async def quality(self) -> ConnectionReport:
        own = ConnectionStats("websocket", protocol="tcp")
        return quality_of(own, self.inbox.quality)

    def send(self, event: Json) -> None:
        self._unsent.put(encode(event).decode())

    def events(self) -> AsyncGenerator[ReceivedEvent, None]:
        return self.inbox.events()

    async def read(self) -> None:
        """Reads events until the server closes the connection."""
        async for message in self._ws:
            if message.type is WSMsgType.TEXT and (event := decoded(message.data)) is not None:
                self._take(event)
        code = self._ws.close_code
        self.inbox.close(f"the server closed it ({code})" if code else "the network failed")

    async def write(self) -> None:
        """Sends queued events."""
        try:
            async for text in self._unsent:
                await self._ws.send_str(text)
        except ClientConnectionError:
            return  # `read` reports the reason
        self.inbox.close("our events were not taken")

    async def speak(self) -> None:
        """Sends the microphone's audio: a frame per 20 ms, without drift."""
        origin, tick = self._clock(), 0
        while True:
            pcm = self.mouth.pull().pcm
            audio = b64encode(to_bytes(pcm)).decode()
            self.send({"type": "input_audio_buffer.append", "audio": audio})
            tick += 1
            await asyncio.sleep(origin + tick * PTIME_MS / 1000 - self._clock())

    def _take(self, event: Json) -> None:
        if event.get("type") != "response.output_audio.delta":
            self.inbox.put(event)
            return
        pcm = from_bytes(b64decode(str(event.get("delta", ""))))
        self._on_sound(AudioFrame(pcm, RATE_HZ, self._heard), self._clock())
        self._heard += len(pcm)


@asynccontextmanager
async def over_websocket(
    address: Address, wish: SessionRequest, on_sound: OnSound
) -> AsyncGenerator[WebSocketClient, None]:
    """Opens a connection and agrees on its session. Raises CannotConnect."""
    url = address.realtime(model=wish.model)
    async with http_session(address) as http:
        with reaching(address):
            ws = await upgraded(http, url, address)
        client = WebSocketClient(ws, on_sound)
        try:
            async with background(client.read(), client.write()):
                await greeted(client.inbox)
                await wished(client.send, client.inbox, wish)
                await extended(client.send, client.inbox)
                async with background(client.speak()):
                    yield client
        finally:
            await ws.close()


async def upgraded(http: ClientSession, url: str, address: Address) -> ClientWebSocketResponse:
    """Opens a WebSocket. Raises CannotConnect with the server's own reason."""
    try:
        return await http.ws_connect(
            url, ssl=address.ssl(), protocols=("realtime",), max_msg_size=MAX_EVENT_BYTES
        )
    except WSServerHandshakeError as error:
        # aiohttp drops the body of a refused upgrade, which has the reason: ask again and read it.
        async with http.get(url, ssl=address.ssl(), headers=_UPGRADE) as response:
            raise await refusal(response) from error
