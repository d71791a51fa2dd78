"""WebSocket sessions that cost the client little: events are made before, and audio is only
counted."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import msgspec
from aiohttp import ClientConnectionError, ClientWebSocketResponse, WSMsgType
from msgspec.json import encode

from bench.capacity.one_run import SETTLE_S, CapacityRun, window
from bench.capacity.webrtc_load import CREATE_RESPONSE
from bench.client.http import Address, connect_errors, http_session
from bench.client.microphone import RATE_HZ
from bench.client.realtime import CONNECT_TIMEOUT_S, CannotConnect, Json, background
from bench.client.websocket import open_websocket
from bench.server.own_server import OwnServer
from core.audio import PTIME_MS

ANSWER_S = 4
"""Length of an answer and interval of the requests for one, in seconds: the server then sends as
much audio as it receives."""

CLEAR = encode({"type": "input_audio_buffer.clear"}).decode()
"Event that empties the server's input buffer."

FRAMES_PER_CLEAR = 50
"Frames after which a client that never commits clears its buffer: one second."


@dataclass(frozen=True, slots=True)
class ClientBehaviour:
    """Use that a client makes of the server."""

    turn_detection: Json | None
    is_echo: bool = False
    "True: the server only sends back what it gets, so nothing but audio is sent."

    def greeting(self) -> list[str]:
        """Returns the first events of a connection."""
        if self.is_echo:
            return []
        audio: Json = {"input": {"turn_detection": self.turn_detection}}
        session: Json = {"type": "realtime", "audio": audio}
        return [encode({"type": "session.update", "session": session}).decode()]


ECHO = ClientBehaviour(None, is_echo=True)
"Behaviour for the echo server."

WITHOUT_VAD = ClientBehaviour(None)
"Behaviour of a client that switches turn detection off."

WITH_SERVER_VAD = ClientBehaviour(
    {"type": "server_vad", "create_response": False, "interrupt_response": False}
)
"Behaviour of a client whose turns are detected but not answered."


class _ServerEvent(msgspec.Struct):
    type: str
    delta: str = ""
    audio: str = ""
    "Audio in an event that the echo server sends back."


_read = msgspec.json.Decoder(_ServerEvent).decode


class WebSocketLoadClient:
    """One connection; it counts the audio that it receives."""

    def __init__(self, ws: ClientWebSocketResponse, behaviour: ClientBehaviour) -> None:
        self.audio_chars = 0
        "Received audio in characters of Base64."
        self.errors = 0
        self.cleared = 0
        self.event_received = asyncio.Event()
        "Set by each event."
        self._ws, self._behaviour = ws, behaviour
        self._clock = asyncio.get_running_loop().time

    @property
    def received_s(self) -> float:
        return self.audio_chars * 3 / 4 / 2 / RATE_HZ

    async def read(self) -> None:
        """Reads events until the connection ends."""
        async for message in self._ws:
            if message.type is not WSMsgType.TEXT:
                break
            event = _read(message.data)
            if event.type in {"response.output_audio.delta", "input_audio_buffer.append"}:
                self.audio_chars += len(event.delta) + len(event.audio)
            self.errors += event.type == "error"
            self.cleared += event.type == "input_audio_buffer.cleared"
            self.event_received.set()

    async def write(self, appends: Sequence[str], offset: int, phase: float) -> None:
        """Sends a frame per 20 ms, and the other events of its behaviour.

        phase: shift of the frames, 0 to 1, so that connections do not send at the same moment.
        """
        for text in self._behaviour.greeting():
            await self.send(text)
        origin = self._clock() + phase * PTIME_MS / 1000
        ticks_per_answer = ANSWER_S * 1000 // PTIME_MS
        tick = 0
        while True:
            await asyncio.sleep(max(0.0, origin + tick * PTIME_MS / 1000 - self._clock()))
            await self.send(appends[(offset + tick) % len(appends)])
            if not self._behaviour.is_echo:
                if self._behaviour.turn_detection is None and tick % FRAMES_PER_CLEAR == 0:
                    await self.send(CLEAR)
                if (tick - round(phase * ticks_per_answer)) % ticks_per_answer == 0:
                    await self.send(CREATE_RESPONSE)
            tick += 1

    async def send(self, text: str) -> None:
        try:
            await self._ws.send_str(text)
        except ClientConnectionError as error:
            raise CannotConnect("the server closed a connection") from error

    async def wait_for_answer(self) -> None:
        """Waits for an answer, which proves that the server still works. Raises CannotConnect."""
        before = self.cleared
        await self.send(CLEAR)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                while self.cleared == before:
                    self.event_received.clear()
                    await self.event_received.wait()
        except TimeoutError:
            raise CannotConnect(f"no answer within {CONNECT_TIMEOUT_S} s") from None


async def run(
    server: OwnServer,
    behaviour: ClientBehaviour,
    appends: Sequence[str],
    seconds: float,
    sessions: int,
) -> CapacityRun:
    """Runs this many connections for this time. Raises CannotConnect."""
    async with streaming(server.address, sessions, behaviour) as streams:
        writing = (
            stream.write(appends, number * len(appends) // sessions, number / sessions)
            for number, stream in enumerate(streams)
        )
        async with background(*writing):
            await asyncio.sleep(SETTLE_S)
            before_s = sum(stream.received_s for stream in streams)
            measured = await window(server.pid, seconds)
            received_s = sum(stream.received_s for stream in streams) - before_s
    errors = sum(stream.errors for stream in streams)
    return CapacityRun(sessions, measured, received_s, refusals=errors)


@asynccontextmanager
async def streaming(
    address: Address, sessions: int, behaviour: ClientBehaviour
) -> AsyncGenerator[Sequence[WebSocketLoadClient]]:
    """Opens connections, which are read all the time. Raises CannotConnect."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(http_session(address))
        streams = []
        for _ in range(sessions):
            with connect_errors(address):
                ws = await open_websocket(http, address.realtime(model="default"), address)
            stack.push_async_callback(ws.close)
            streams.append(WebSocketLoadClient(ws, behaviour))
        await stack.enter_async_context(background(*(stream.read() for stream in streams)))
        yield streams
