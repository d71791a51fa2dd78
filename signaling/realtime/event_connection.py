"""Base of the connections of both of OpenAI's protocols: paces the client's events, ends the
session, and shares it with sideband connections. A subclass is one dialect of the events."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import ClassVar, Generic, TypeVar

from core.audio import ASR_RATE_HZ, AudioFrame, ms_to_samples
from core.conversation.events import SessionEvent
from core.errors import EarshotError, RequestError
from core.http.client_connection import ClientDisconnected
from core.net.connection_stats import ConnectionStats
from core.ports import Metrics
from core.tasks import Alarm
from pipeline.session.session import Session
from signaling.realtime.protocol.audio_input import SLICE_MS
from signaling.realtime.protocol.client_events import ClientEventBase
from signaling.realtime.protocol.decode import MAX_EVENT_BYTES, BadEvent, too_large
from signaling.realtime.protocol.translator import Transport
from signaling.realtime.transports.sideband_queue import SidebandQueue

SAMPLES_PER_STEP = ms_to_samples(SLICE_MS, ASR_RATE_HZ)
"""Audio samples that are processed at once. It takes some 0.8 ms, and one event may bring five
minutes."""

SAMPLES_PER_EVENT = SAMPLES_PER_STEP // 8
"""Cost of any event, in samples: it takes some 50 µs, and the transport may deliver thousands at
once."""

LARGE_EVENT_CHARS = 32 * 1024
"Length from which an event counts as SAMPLES_PER_STEP: an update with 128 tools takes some 6 ms."

PAUSE_S = 0.005
"""Pause between two events of a client, in seconds, in which the event loop has served the other
clients. A client that sends in real time then never yields, which would cost a round of the event
loop. A client that floods pauses only for microseconds, however long its events take."""


class EventLoopShare:
    """Work that one connection has done since the event loop last served others, in audio samples
    or their equivalent. Times are in seconds of the event loop's clock."""

    def __init__(self) -> None:
        self._done_samples = 0
        self._ended_at = 0.0

    def begin_event(self, now: float) -> None:
        """Begins an event; a long pause before it resets the count."""
        if now - self._ended_at >= PAUSE_S:
            self._done_samples = 0

    def is_share_used(self, samples: int) -> bool:
        """Adds the next piece of work. Returns True if the caller must yield to other tasks before
        it."""
        is_used = self._done_samples >= SAMPLES_PER_STEP
        self._done_samples = samples if is_used else self._done_samples + samples
        return is_used

    def end_event(self, now: float) -> None:
        """Ends an event."""
        self._ended_at = now


class DisconnectReason(Enum):
    """Reason for the end of a connection."""

    CLIENT = "the client left"
    HUNG_UP = "the call was hung up by a request"
    LOST = "the connection to the client was lost"
    CLOSED = "the client closed the session"
    IDLE = "nothing happened for too long"
    EXPIRED = "the client secret expired"
    LAGGING = "the client did not take its events"
    SERVER = "the server ended the session"


GONE = frozenset({DisconnectReason.CLIENT, DisconnectReason.HUNG_UP, DisconnectReason.LOST})
"Ends after which the client is there no more."

UNREACHABLE = GONE | {DisconnectReason.LAGGING}
"Ends after which nothing more is sent to the client."


class SlowClient(EarshotError):
    """Raised by `send` if the client does not read what it is sent."""

    code = "client_lagging"


EventT = TypeVar("EventT", bound=ClientEventBase)
OutT = TypeVar("OutT")
SidebandT = TypeVar("SidebandT", bound=SidebandQueue)


class EventConnection(ABC, Generic[EventT, OutT, SidebandT]):
    """Connection of one client to its session. The task that calls `run` owns it. Its function
    `send` may raise ClientDisconnected and SlowClient.

    EventT: events of the client. OutT: events to the client. SidebandT: queue of a sideband
    connection.
    """

    expiry_message: ClassVar[str]
    "Message of the error `session_expired`."

    def __init__(
        self,
        session: Session,
        send: Callable[[str], Awaitable[None]],
        metrics: Metrics,
        *,
        transport: Transport,
        idle_timeout_s: float,
        lasts_s: float | None,
    ) -> None:
        """Prepares the connection.

        `send`: sends one text to the client. `idle_timeout_s`: the session ends after this time
        without an event or speech. `lasts_s`: longest time of the session; None: no limit.
        """
        self._session, self._send_text, self._metrics = session, send, metrics
        self._transport = transport
        self._idle_timeout_s, self._lasts_s = idle_timeout_s, lasts_s
        self._end: DisconnectReason | None = None
        self._tasks: asyncio.TaskGroup | None = None
        "Set while `run` sends events."
        self._running: set[asyncio.Task[None]] = set()
        "Tasks that end with the session's events."
        self._now = asyncio.get_running_loop().time
        self._active_at = self._now()
        self._idle_alarm = Alarm(self._now)
        self._loop_share = EventLoopShare()
        "Work of this client and its sideband connections, to share the event loop fairly."
        self.sidebands: set[SidebandT] = set()
        "Sideband connections, which receive the events too; see `join`."

    async def run(self) -> DisconnectReason:
        """Sends the first events, then all events until the session ends. Returns the reason of
        the end."""
        self._note_activity()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._start(self._end_when_idle(), "idle")
                self._start(self._end_when_expired(), "expiry")
                await self._begin()
                async for session_event in self._session.events:
                    self._note_activity()
                    await self._tell(session_event)
                self._tasks = None
                for task in self._running:
                    task.cancel()
            if self._end is None:
                lags = self._session.events.overflowed
                self._end = DisconnectReason.LAGGING if lags else DisconnectReason.SERVER
            await self._finish(self._end)
        finally:
            self._tasks = None
            self._release_sidebands()
        return self._end

    def join(self, sideband: SidebandT) -> None:
        """Adds a sideband connection: it gets all events from now on."""
        if self._end is not None:
            sideband.close()
        self.sidebands.add(sideband)

    async def receive(self, text: str, sideband: SidebandT | None = None) -> None:
        """Applies one event of the client or of a sideband connection. An invalid event is answered
        with an `error` event, not raised."""
        if self._end is not None:
            return  # too late: the session accepts nothing any more
        is_large = len(text) >= LARGE_EVENT_CHARS
        await self._begin_event(SAMPLES_PER_STEP if is_large else SAMPLES_PER_EVENT)
        event_id = None
        try:
            event = self._decode(text, sideband)
            event_id = event.event_id
            await self._apply(event, sideband)
        except EarshotError as error:
            await self._refuse(error, event_id, sideband)
        self._loop_share.end_event(self._now())

    async def refuse_binary(self, sideband: SidebandT | None = None) -> None:
        """Answers a binary frame with an `error` event."""
        await self._begin_event(SAMPLES_PER_EVENT)
        message = "Binary frames are not allowed: audio goes as base64."
        await self._refuse(BadEvent(message, code="invalid_json"), sideband=sideband)
        self._loop_share.end_event(self._now())

    async def refuse_too_large(self, sideband: SidebandT | None = None) -> None:
        """Answers a text that was too large for the transport with an `error` event."""
        await self._refuse(too_large(MAX_EVENT_BYTES), sideband=sideband)

    async def send_flood_error(self, unread: int) -> None:
        """Sends the last event of a client that sends faster than its events can be read."""
        message = f"The call ends: {unread} events wait to be read, and more came."
        await self._send(self._flood_error("too_many_events", message), to_sidebands=False)

    def pull(self) -> AudioFrame | None:
        """Returns the next 20 ms of sound, for a transport with media of its own."""
        return self._session.pull()

    def feed(self, frame: AudioFrame) -> None:
        """Takes audio of the microphone from a transport with media of its own."""
        self._session.feed(frame)

    @property
    def wants_quality(self) -> bool:
        """True if the client asked for events about the quality of its connection."""
        return False

    async def send_quality(self, quality: ConnectionStats) -> None:
        """Sends the connection's quality, if the client asked for it."""

    def close(self, end: DisconnectReason = DisconnectReason.CLIENT) -> None:
        """Asks `run` to end. The first reason stays."""
        if self._end is None:
            self._end = end
        self._session.close()
        if self._tasks is None:  # `run` is not active, so it will not release them
            self._release_sidebands()

    # The dialect.

    @abstractmethod
    async def _begin(self) -> None:
        """Sends the first events, and starts the tasks of the dialect."""

    @abstractmethod
    async def _tell(self, session_event: SessionEvent) -> None:
        """Sends what the client is told about one event of the session."""

    async def _finish(self, end: DisconnectReason) -> None:
        """Sends the last events, after those of the session."""

    @abstractmethod
    def _decode(self, text: str, sideband: SidebandT | None) -> EventT:
        """Decodes one text of the client or of a sideband connection. Raises BadEvent."""

    @abstractmethod
    async def _apply(self, event: EventT, sideband: SidebandT | None) -> None:
        """Applies a valid event. Raises EarshotError if the session refuses it."""

    @abstractmethod
    def _error(self, error: EarshotError, event_id: str | None = None) -> OutT:
        """Returns the event for an error. `event_id`: client's id of the event that caused it."""

    @abstractmethod
    def _flood_error(self, code: str, message: str) -> OutT:
        """Returns the event for a client that sends too fast."""

    def _numbered(self, out: OutT) -> OutT:
        """Returns an event with its id, if the dialect did not give it one when it made it."""
        return out

    @abstractmethod
    def _text(self, out: OutT) -> str | None:
        """Returns the text of an event for the client, within the client's limit of size. None: the
        client's shape has no such event."""

    @abstractmethod
    def _put(self, sideband: SidebandT, out: OutT) -> None:
        """Queues an event for a sideband connection."""

    # What the dialects share.

    def _start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Starts a task that ends with the session's events. Only while `run` sends events."""
        assert self._tasks is not None
        task = self._tasks.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _send(self, out: OutT, *, to_sidebands: bool = True) -> None:
        """Sends an event to the client, and to its sideband connections if `to_sidebands`. If the
        client cannot be reached, the session ends and nothing more is sent to it."""
        out = self._numbered(out)
        for sideband in self.sidebands if to_sidebands else ():
            self._put(sideband, out)
        if self._end in UNREACHABLE:
            return
        text = self._text(out)
        if text is None:
            return
        try:
            await self._send_text(text)
        except ClientDisconnected:
            self.close(DisconnectReason.CLIENT)
        except SlowClient:
            self.close(DisconnectReason.LAGGING)

    async def _refuse(
        self,
        error: EarshotError,
        event_id: str | None = None,
        sideband: SidebandT | None = None,
    ) -> None:
        """Counts an error and answers it, only to the connection that caused it."""
        if isinstance(error, BadEvent):
            event_id = error.event_id
        self._metrics.count("earshot_errors", code=error.code)
        out = self._numbered(self._error(error, event_id))
        if sideband is None:
            await self._send(out, to_sidebands=False)
        else:
            self._put(sideband, out)

    def _require_transport(self, transport: Transport, name: str) -> None:
        if self._transport != transport:
            raise RequestError(
                f"'{name}' is not for this transport: over WebRTC audio runs on the media track, "
                "over WebSocket in events.",
                code="unsupported_event",
                param="type",
            )

    async def _begin_event(self, samples: int) -> None:
        """Lets other clients be served first if this one has used its share. `samples`: cost of
        its next event."""
        self._note_activity()
        self._loop_share.begin_event(self._active_at)
        if self._loop_share.is_share_used(samples):
            await asyncio.sleep(0)

    def _release_sidebands(self) -> None:
        for sideband in self.sidebands:
            sideband.close()

    def _note_activity(self) -> None:
        self._active_at = self._now()
        self._idle_alarm.set(self._active_at + self._idle_timeout_s)

    async def _end_when_idle(self) -> None:
        await self._idle_alarm.wait()
        message = f"The session ends: nothing happened for {self._idle_timeout_s:g} s."
        await self._send(self._error(RequestError(message, code="session_idle")))
        self.close(DisconnectReason.IDLE)

    async def _end_when_expired(self) -> None:
        if self._lasts_s is None:
            return
        await asyncio.sleep(self._lasts_s)
        await self._send(self._error(RequestError(self.expiry_message, code="session_expired")))
        self.close(DisconnectReason.EXPIRED)
