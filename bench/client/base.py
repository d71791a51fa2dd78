"""An OpenAI Realtime client that measures: what it says is paced, what it gets has a time.

async with connect(address, "webrtc", Wish(), ear.hear) as client:
    await client.mouth.say(pcm)
    async for received in client.events(): ...
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from bench.client.connection_stats import ConnectionReport
from bench.client.http import Address
from bench.client.microphone import Microphone
from bench.client.realtime import ClientTransport, Json, OnSound, ReceivedEvent, SessionRequest
from bench.client.webrtc import over_webrtc
from bench.client.websocket import over_websocket


class RealtimeClient(Protocol):
    """One connection, over whatever transport."""

    @property
    def transport(self) -> ClientTransport: ...

    @property
    def mouth(self) -> Microphone: ...

    @property
    def end(self) -> str:
        """Why the connection is over; empty while it lives."""
        ...

    async def quality(self) -> ConnectionReport:
        """How good the connection has been so far."""
        ...

    def send(self, event: Json) -> None:
        """In order; never blocks."""
        ...

    def events(self) -> AsyncIterator[ReceivedEvent]:
        """What the server says, until the connection is over; for one reader at a time."""
        ...


@asynccontextmanager
async def connect(
    address: Address, transport: ClientTransport, wish: SessionRequest, on_sound: OnSound
) -> AsyncGenerator[RealtimeClient, None]:
    """A connection whose session is agreed on; leaving ends it. Raises CannotConnect."""
    if transport == "webrtc":
        async with over_webrtc(address, wish, on_sound) as webrtc:
            yield webrtc
    else:
        async with over_websocket(address, wish, on_sound) as websocket:
            yield websocket
