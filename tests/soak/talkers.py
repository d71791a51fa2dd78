"""Four people who use one server in different ways, over and over."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from bench.client.base import RealtimeClient
from bench.client.conversation import ConversationClient, TurnReport, open_conversation
from bench.client.http import Address
from bench.client.microphone import RATE_HZ
from bench.client.realtime import ClientTransport, ConnectionLost, SessionRequest
from bench.client.webrtc import WebRtcClient
from bench.client.websocket import WebSocketClient
from core.audio import Pcm
from tests.speech import say

TURN_TIMEOUT_S = 20.0

TURNS_PER_CALL = 2

SAID = (
    "turn on the kitchen lights",
    "what time is it",
    "turn off the bathroom lights",
    "what is the date today",
    "turn on the hallway lights",
    "cancel all timers",
)
LONG = "what is the date today " * 3


@dataclass
class Log:
    """Counts of calls and turns of all talkers."""

    turns: list[tuple[str, TurnReport]] = field(default_factory=list)
    calls: int = 0
    cancelled: int = 0
    vanished: int = 0


@dataclass
class Scene:
    """The server that the four use. They begin nothing after `until`."""

    url: str
    until: float
    log: Log

    def goes_on(self) -> bool:
        return asyncio.get_running_loop().time() < self.until

    @asynccontextmanager
    async def call(
        self, transport: ClientTransport
    ) -> AsyncIterator[tuple[ConversationClient, RealtimeClient]]:
        self.log.calls += 1
        opened = open_conversation(
            Address(self.url), transport, SessionRequest(), timeout_s=TURN_TIMEOUT_S
        )
        async with opened as (talker, client):
            yield talker, client

    async def turn(self, talker: ConversationClient, text: str) -> None:
        self.log.turns.append((text, await talker.say(clip(text))))


def clip(text: str) -> Pcm:
    return say(text, rate_hz=RATE_HZ, lead_ms=300)


def texts(begin: int) -> Iterator[str]:
    """Yields the six texts in turn, beginning with this one."""
    return cycle((*SAID[begin:], *SAID[:begin]))


async def polite(scene: Scene, transport: ClientTransport, begin: int) -> None:
    """Calls, has two turns, hangs up, calls again."""
    said = texts(begin)
    while scene.goes_on():
        async with scene.call(transport) as (talker, _):
            for _ in range(TURNS_PER_CALL):
                await scene.turn(talker, next(said))


async def cancelling(scene: Scene, begin: int) -> None:
    """Cancels every first response as it begins, and has one whole turn after it."""
    said = texts(begin)
    transports: Iterator[ClientTransport] = cycle(("webrtc", "ws"))
    while scene.goes_on():
        async with scene.call(next(transports)) as (talker, client):
            async with asyncio.TaskGroup() as tasks:
                speaking = tasks.create_task(talker.say(clip(next(said))))
                while not talker._log.output_item_id and not speaking.done():
                    await talker._wait_for_change()
                client.send({"type": "response.cancel"})
            scene.log.cancelled += speaking.result().status == "cancelled"
            await scene.turn(talker, next(said))


async def vanishing(scene: Scene, begin: int) -> None:
    """Cuts the connection after one turn, in the middle of a word."""
    said = texts(begin)
    transports: Iterator[ClientTransport] = cycle(("ws", "webrtc"))
    while scene.goes_on():
        with suppress(ConnectionLost):
            async with scene.call(next(transports)) as (talker, client):
                await scene.turn(talker, next(said))
                await _cut_while_speaking(talker, client)
                scene.log.vanished += 1


async def _cut_while_speaking(talker: ConversationClient, client: RealtimeClient) -> None:
    async with asyncio.TaskGroup() as tasks:
        speaking = tasks.create_task(talker.say(clip(LONG)))
        while not talker._log.is_speech and not speaking.done():
            await talker._wait_for_change()
        await _cut(client)
        speaking.cancel()


async def _cut(client: RealtimeClient) -> None:
    """Cuts the cable: no packet leaves this end any more."""
    if isinstance(client, WebRtcClient):
        (sender,) = client.peer._pc.getSenders()
        for protocol in sender.transport.transport._connection._protocols:
            for target, name in ((protocol, "datagram_received"), (protocol.transport, "sendto")):
                setattr(target, name, _drop)
    else:
        assert isinstance(client, WebSocketClient)
        connection = client._ws._response.connection
        assert connection is not None
        assert connection.transport is not None
        connection.transport.abort()


def _drop(*_: object) -> None:
    pass


async def all_four(url: str, seconds: float, log: Log) -> None:
    """Lets all four use the server for this long; returns when the last has left."""
    scene = Scene(url, asyncio.get_running_loop().time() + seconds, log)
    people: list[Callable[[], Coroutine[Any, Any, None]]] = [
        lambda: polite(scene, "webrtc", 0),
        lambda: polite(scene, "ws", 2),
        lambda: cancelling(scene, 4),
        lambda: vanishing(scene, 3),
    ]
    async with asyncio.TaskGroup() as tasks:
        for person in people:
            tasks.create_task(person())
