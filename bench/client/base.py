"""OpenAI Realtime client for measurements: sends audio in real time, timestamps received events.

async with connect(address, "webrtc", SessionRequest(), receiver.receive) as client:
    await client.microphone.say(pcm)
    async for received in client.events(): ...
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from bench.client.connection_stats import ConnectionReport
from bench.client.http import Address
from bench.client.live import connect_live
from bench.client.microphone import Microphone
from bench.client.realtime import ClientTransport, Json, OnSound, ReceivedEvent, SessionRequest
from bench.client.webrtc import connect_webrtc
from bench.client.websocket import connect_websocket


class RealtimeClient(Protocol):
    """One connection, over any transport."""

    @property
    def transport(self) -> ClientTransport: ...

    @property
    def microphone(self) -> Microphone: ...

    @property
    def end_reason(self) -> str:
        """Why the connection is over; empty while it is open."""
        ...

    @property
    def conversation_id(self) -> str:
        """Id of the conversation, as the server has told it; empty: it has not."""
        ...

    async def quality(self) -> ConnectionReport:
        """Returns the quality of the connection so far."""
        ...

    def send(self, event: Json) -> None:
        """Queues an event; never blocks. Events are sent in order."""
        ...

    def events(self) -> AsyncIterator[ReceivedEvent]:
        """Yields the server's events until the connection is over; for one reader at a time."""
        ...


@asynccontextmanager
async def connect(
    address: Address, transport: ClientTransport, request: SessionRequest, on_sound: OnSound
) -> AsyncGenerator[RealtimeClient, None]:
    """Opens a connection with this session while the body runs. Raises CannotConnect.

    on_sound: called with received audio and its time of arrival.
    """
    if transport == "webrtc":
        async with connect_webrtc(address, request, on_sound) as webrtc:
            yield webrtc
    elif transport == "live":
        async with connect_live(address, request, on_sound) as live:
            yield live
    else:
        async with connect_websocket(address, request, on_sound) as websocket:
            yield websocket
