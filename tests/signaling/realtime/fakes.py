"""A session that only records its calls, and a client that records the events it gets."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from core.audio import AudioFrame, Pcm
from core.conversation.events import SessionEvent
from core.conversation.items import Item
from core.errors import EarshotError
from core.queues import Outbox
from engines.base import AsrPadding
from pipeline.session.session import Session
from pipeline.shared.settings import ResponseRequest, SessionSettings
from pipeline.tools.home import Home, default_home
from signaling.realtime.connection import RealtimeConnection
from signaling.realtime.event_connection import DisconnectReason
from signaling.realtime.protocol.translator import Transport
from signaling.realtime.session.settings import SessionConfiguration
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts

BEGUN = ["session.created", "conversation.created"]
"The first events of every connection."

Scene = Callable[[RealtimeConnection], Awaitable[Any]]


@dataclass
class NotedSession:
    """A session whose method calls each become one entry of `asked`; `refuses` is raised by the
    next one."""

    id: str = "sess_1"
    conversation_id: str = "conv_1"
    events: Outbox[SessionEvent] = field(default_factory=lambda: Outbox(8))
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    frames: list[AudioFrame] = field(default_factory=list)
    refuses: EarshotError | None = None
    recordings: dict[int, Pcm] = field(default_factory=dict)
    "The recordings of the item that was added last."
    knows_nopad: bool = True
    fallback_padding: AsrPadding | None = None

    def feed(self, frame: AudioFrame) -> None:
        self.frames.append(frame)

    def configure(self, settings: SessionSettings) -> None:
        self._ask("configure", settings)
        is_replaced = settings.padding == "nopad" and not self.knows_nopad
        self.fallback_padding = "longest" if is_replaced else None

    def commit_input(self) -> None:
        self._ask("commit_input")

    def clear_input(self) -> None:
        self._ask("clear_input")

    def add_item(
        self, item: Item, previous_item_id: str | None, recordings: Mapping[int, Pcm]
    ) -> None:
        self._ask("add_item", item, previous_item_id)
        self.recordings = dict(recordings)

    def delete_item(self, item_id: str) -> None:
        self._ask("delete_item", item_id)

    def retrieve_item(self, item_id: str) -> None:
        self._ask("retrieve_item", item_id)

    def create_response(self, request: ResponseRequest) -> None:
        self._ask("create_response", request)

    def cancel_response(self, response_id: str | None = None) -> None:
        self._ask("cancel_response", response_id)

    def clear_output(self) -> None:
        self._ask("clear_output")

    def truncate(self, item_id: str, audio_end_ms: int) -> None:
        self._ask("truncate", item_id, audio_end_ms)

    def pull(self) -> AudioFrame | None:
        return None

    @property
    def next_sound_event(self) -> asyncio.Event | None:
        return None

    def close(self) -> None:
        self.events.close()

    def _ask(self, *what: Any) -> None:
        refuses, self.refuses = self.refuses, None
        if refuses is not None:
            raise refuses
        self.asked.append(what)


class CountingHome(Home):
    """A home that is a number; `change` counts up. Like the real home it skips to the latest
    state."""

    def __init__(self) -> None:
        super().__init__(default_home())
        self.revision = 0
        self.watchers = 0
        self._changed = asyncio.Event()

    def change(self) -> None:
        self.revision += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def watch(self, language: str | None = None) -> AsyncGenerator[Any, None]:
        self.watchers += 1
        try:
            while True:
                changed = self._changed
                yield {"revision": self.revision, "language": language}
                await changed.wait()
        finally:
            self.watchers -= 1


@dataclass
class Client:
    """The client side of a connection."""

    session: NotedSession = field(default_factory=NotedSession)
    sent: list[dict[str, Any]] = field(default_factory=list)
    metrics: Counts = field(default_factory=Counts)
    takes: Callable[[], Awaitable[None]] | None = None
    "Awaited before each event is taken; may raise what `send` may."

    def connection(
        self,
        terms: SessionConfiguration | None = None,
        *,
        transport: Transport = "websocket",
        home: Home | None = None,
        idle_timeout_s: float = 600,
        max_event_bytes: int | None = None,
    ) -> RealtimeConnection:
        return RealtimeConnection(
            cast("Session", self.session),  # NotedSession has all that a connection calls
            terms or SessionConfiguration(),
            self._take,
            self.metrics,
            transport=transport,
            idle_timeout_s=idle_timeout_s,
            home=home,
            max_event_bytes=max_event_bytes,
        )

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.sent]

    async def _take(self, text: str) -> None:
        if self.takes is not None:
            await self.takes()
        self.sent.append(json.loads(text))


def play(client: Client, scene: Scene, **options: Any) -> tuple[DisconnectReason, float]:
    """Runs a connection together with a scene; returns how the connection ended, and after how many
    seconds."""
    ends: list[DisconnectReason] = []

    async def main() -> None:
        connection = client.connection(**options)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(connection.run())
            await asyncio.sleep(0)
            await scene(connection)
            ends.append(await running)

    seconds = run_virtual(main())
    return ends[0], seconds


Event = dict[str, Any]


def sends(*events: Event | str) -> Scene:
    """Sends events, then hangs up."""

    async def scene(connection: RealtimeConnection) -> None:
        for event in events:
            await connection.receive(event if isinstance(event, str) else json.dumps(event))
        connection.close()

    return scene


def converse(client: Client, *events: Event | str, **options: Any) -> list[Event]:
    """Returns the events that the client got after the first ones."""
    assert play(client, sends(*events), **options)[0] is DisconnectReason.CLIENT
    assert client.types[:2] == BEGUN
    return client.sent[2:]


SENT_BYTES = 200_000


async def gone(connection: RealtimeConnection) -> None:
    """Waits, within the test's deadline, until the call has no sideband."""
    while True:
        if not connection.sidebands:
            return
        await asyncio.sleep(0.01)


class TalkativeHome(Home):
    """A home whose state always changes."""

    def __init__(self, told: str = "x" * SENT_BYTES) -> None:
        super().__init__(default_home())
        self.state = told
        self.told = 0

    async def watch(self, language: str | None = None) -> AsyncGenerator[Any, None]:
        while True:
            self.told += 1
            yield {"areas": self.state}
            await asyncio.sleep(0)


WATCH = {
    "type": "session.update",
    "session": {"type": "realtime", "include": ["earshot.home"]},
}
