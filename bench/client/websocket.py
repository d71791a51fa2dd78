"""Realtime client over a WebSocket: audio as Base64 in events, paced by the client."""

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

from bench.client.connection_stats import ConnectionReport, combined_report
from bench.client.http import Address, connect_errors, http_session, refusal
from bench.client.microphone import RATE_HZ, Microphone
from bench.client.realtime import (
    ClientTransport,
    EventInbox,
    Json,
    OnSound,
    ReceivedEvent,
    SessionRequest,
    background,
    decode_event,
    include_earshot_events,
    request_settings,
    wait_for_session,
)
from core.audio import PTIME_MS, AudioFrame
from core.net.connection_stats import ConnectionStats
from core.queues import Outbox
from media.pcm import from_bytes, to_bytes

MAX_UNSENT_EVENTS = 500
"""Limit of unsent events, 10 s of audio: a server that is further behind cannot follow live
speech."""

MAX_EVENT_BYTES = 20 * 1024 * 1024
"Largest event. The API allows 15 MiB of audio in one, and Base64 makes it a third larger."

_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "ZWFyc2hvdCBhc2tzIHdoeQ==",
}
"Headers of an upgrade request (RFC 6455 section 4.1). The key may be any 16 bytes."


class WebSocketClient:
    """A `RealtimeClient` over a WebSocket."""

    transport: ClientTransport = "ws"
    append_type = "input_audio_buffer.append"
    sound_type = "response.output_audio.delta"
    "Types of the events that hold audio, to the server and from it."

    def __init__(self, ws: ClientWebSocketResponse, on_sound: OnSound) -> None:
        self._clock = asyncio.get_running_loop().time
        self.microphone = Microphone(self._clock)
        self.inbox = EventInbox(self._clock)
        self._ws, self._on_sound = ws, on_sound
        self._unsent: Outbox[str] = Outbox(MAX_UNSENT_EVENTS)
        self._received_samples = 0

    @property
    def end_reason(self) -> str:
        return self.inbox.end_reason

    @property
    def conversation_id(self) -> str:
        return self.inbox.conversation_id

    async def quality(self) -> ConnectionReport:
        own = ConnectionStats("websocket", protocol="tcp")
        return combined_report(own, self.inbox.quality)

    def send(self, event: Json) -> None:
        self._unsent.put(encode(event).decode())

    def events(self) -> AsyncGenerator[ReceivedEvent, None]:
        return self.inbox.events()

    async def read(self) -> None:
        """Reads events until the server closes the connection."""
        async for message in self._ws:
            if message.type is WSMsgType.TEXT and (event := decode_event(message.data)) is not None:
                self._on_event(event)
        code = self._ws.close_code
        self.inbox.close(f"the server closed it ({code})" if code else "the network failed")

    async def write(self) -> None:
        """Sends queued events."""
        try:
            async for text in self._unsent:
                await self._ws.send_str(text)
        except ClientConnectionError:
            return  # `read` reports the reason
        self.inbox.close("the server did not read the client's events")

    async def send_audio(self) -> None:
        """Sends the microphone's audio until cancelled: a frame per 20 ms, without drift."""
        origin, tick = self._clock(), 0
        while True:
            pcm = self.microphone.pull().pcm
            audio = b64encode(to_bytes(pcm)).decode()
            self.send({"type": self.append_type, "audio": audio})
            tick += 1
            await asyncio.sleep(origin + tick * PTIME_MS / 1000 - self._clock())

    def _on_event(self, event: Json) -> None:
        if event.get("type") != self.sound_type:
            for told in self._translated(event):
                self.inbox.put(told)
            return
        pcm = from_bytes(b64decode(str(event.get("delta", ""))))
        self._on_sound(AudioFrame(pcm, RATE_HZ, self._received_samples), self._clock())
        self._received_samples += len(pcm)

    def _translated(self, event: Json) -> list[Json]:
        """Returns an event of the server as events of the Realtime API."""
        return [event]


@asynccontextmanager
async def connect_websocket(
    address: Address, request: SessionRequest, on_sound: OnSound
) -> AsyncGenerator[WebSocketClient, None]:
    """Opens a connection with this session while the body runs. Raises CannotConnect."""
    url = address.realtime(model=request.model, **request.query())
    async with http_session(address) as http:
        with connect_errors(address):
            ws = await open_websocket(http, url, address)
        client = WebSocketClient(ws, on_sound)
        try:
            async with background(client.read(), client.write()):
                await wait_for_session(client.inbox)
                await request_settings(client.send, client.inbox, request)
                await include_earshot_events(client.send, client.inbox)
                async with background(client.send_audio()):
                    yield client
        finally:
            await ws.close()


async def open_websocket(
    http: ClientSession, url: str, address: Address
) -> ClientWebSocketResponse:
    """Opens a WebSocket. Raises CannotConnect with the server's own reason."""
    try:
        return await http.ws_connect(
            url, ssl=address.ssl(), protocols=("realtime",), max_msg_size=MAX_EVENT_BYTES
        )
    except WSServerHandshakeError as error:
        # aiohttp drops the body of a refusal, which has the reason. A second request gets it.
        async with http.get(url, ssl=address.ssl(), headers=_UPGRADE) as response:
            raise await refusal(response) from error
