"""Connects one GPT-Live client and its session, independent of the transport."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import assert_never

from core.audio import AudioFrame
from core.connection_stats import ConnectionStats
from core.errors import Conflict, EarshotError, RequestError
from core.events import OutputItemDone, ResponseDone
from core.http.client_connection import ClientDisconnected
from core.items import FunctionCallItem, Item
from core.ports import Metrics
from core.queues import Outbox
from core.tasks import Alarm
from pipeline.session.session import Session
from pipeline.shared.settings import ResponseRequest
from signaling.live.audio import LiveAudioPath, PacedSender
from signaling.live.client_events import (
    AppendEvent,
    BackendResponseCreate,
    ClientEvent,
    CommentaryAppend,
    InputMute,
    InputUnmute,
    InstructionsAppend,
    LiveInputAppend,
    LiveSessionChange,
    LiveSessionStart,
    ResponseItemCreate,
    SessionClose,
    ThinkingAppend,
    decode,
)
from signaling.live.configuration import LiveConfiguration, session_json, updated
from signaling.live.delegations import delegated_result, responses_item
from signaling.live.server_events import (
    CloseReason,
    CommentaryAppended,
    ErrorOccurred,
    EventEncoder,
    InputMuted,
    InputUnmuted,
    InstructionsAppended,
    LiveSoundDelta,
    ServerEvent,
    SessionClosed,
    SessionStarted,
    SessionUpdated,
    SpanEvent,
    ThinkingAppended,
    Usage,
    UsageUpdated,
    error_of,
)
from signaling.live.translator import ASKED, LiveTranslator
from signaling.realtime.connection import DisconnectReason, SlowClient
from signaling.realtime.protocol.audio_input import InputAudioDecoder
from signaling.realtime.protocol.decode import MAX_EVENT_BYTES, BadEvent, too_large
from signaling.realtime.protocol.translator import Transport
from signaling.realtime.protocol.validation import params_below
from signaling.realtime.transports.fairness import (
    LARGE_EVENT_CHARS,
    SAMPLES_PER_EVENT,
    SAMPLES_PER_STEP,
    EventLoopShare,
)

MAX_SESSION_S = 24 * 3600
"""Longest session in seconds. A client is told when its session expires, so there must be a limit;
a day is more than any conversation needs."""

USAGE_EVERY_S = 15
"Interval of `session.usage.updated`, as seen from OpenAI's service."

MAX_UNTOLD_CLAUSES = 256
"Clauses that began and were not told yet. They wait only while an event is being sent."

_REASONS: Mapping[DisconnectReason, CloseReason] = {
    DisconnectReason.CLOSED: "close_requested",
    DisconnectReason.IDLE: "expired",
    DisconnectReason.EXPIRED: "expired",
    DisconnectReason.SERVER: "connection_lost",
}
"Ends that the client is told, with the reason."

_APPENDED: Mapping[type[AppendEvent], type[SpanEvent]] = {
    InstructionsAppend: InstructionsAppended,
    ThinkingAppend: ThinkingAppended,
    CommentaryAppend: CommentaryAppended,
}
"Append -> the event that tells that it is done."


class LiveConnection:
    """Connection of one client to its session. The task that calls `run` owns it. Its function
    `send` may raise ClientDisconnected and SlowClient."""

    def __init__(
        self,
        session: Session,
        configuration: LiveConfiguration,
        send: Callable[[str], Awaitable[None]],
        metrics: Metrics,
        *,
        transport: Transport,
        idle_timeout_s: float,
        wall_s: float,
        session_id: str | None = None,
        start_event_id: str | None = None,
        max_event_bytes: int | None = None,
    ) -> None:
        """Prepares the connection; `run` serves it.

        `send`: sends one text to the client. `idle_timeout_s`: the session ends after this time
        without an event or speech. `wall_s`: Unix time of the start. `start_event_id`: client's id
        of its `session.start`. `max_event_bytes`: largest text that the transport takes; None: no
        limit. Raises RequestError if the first event would be larger, and for a history that the
        session refuses.
        """
        self._session, self._metrics = session, metrics
        self._id = session_id or session.id
        self._send_text, self._transport = send, transport
        self._idle_timeout_s, self._max_event_bytes = idle_timeout_s, max_event_bytes
        self._start_event_id = start_event_id
        holder = configuration.session.secret_holder
        left_s = None if holder is None else holder.ends_in_s
        self._lasts_s = MAX_SESSION_S if left_s is None else min(MAX_SESSION_S, left_s)
        self._expires_at = int(wall_s + self._lasts_s)
        self._translator = LiveTranslator(configuration)
        self._encoder = EventEncoder()
        self._clauses: Outbox[str] = Outbox(MAX_UNTOLD_CLAUSES)
        self.audio = LiveAudioPath(session, self._clauses.put)
        self._audio_input = InputAudioDecoder(configuration.session.input_format)
        self._sender = PacedSender(
            self.audio, session, configuration.session.output_format, self._send_sound
        )
        self._waiting_request: ResponseRequest | None = None
        "Response that was asked for while another one was made; it begins after that."
        self._end: DisconnectReason | None = None
        self._now = asyncio.get_running_loop().time
        self._began_at = self._active_at = self._now()
        self._idle_alarm = Alarm(self._now)
        self._loop_share = EventLoopShare()
        with params_below("session"):
            self._check_size(SessionUpdated(session=self._session_json()), "instructions")
            for message in configuration.history:
                session.add_item(message)

    async def run(self) -> DisconnectReason:
        """Sends `session.started`, then all events until the session ends. Returns the reason of
        the end."""
        self._note_activity()
        started = SessionStarted(session=self._session_json(), client_event_id=self._start_event_id)
        async with asyncio.TaskGroup() as tasks:
            await self._send(started)
            running = [
                tasks.create_task(self._end_when_idle(), name="idle"),
                tasks.create_task(self._end_when_expired(), name="expiry"),
                tasks.create_task(self._tell_usage(), name="usage"),
                tasks.create_task(self._tell_clauses(), name="clauses"),
            ]
            if self._transport == "websocket":
                running.append(tasks.create_task(self._sender.run(), name="playout"))
            async for session_event in self._session.events:
                self._note_activity()
                self._sender.changed.set()
                for event in self._translator.translated(session_event, self._now_ms):
                    await self._send(event)
                if isinstance(session_event, OutputItemDone):
                    self._answer_call(session_event.item)
                if isinstance(session_event, ResponseDone):
                    await self._respond_now()
            for task in running:
                task.cancel()
        if self._end is None:
            self._end = (
                DisconnectReason.LAGGING
                if self._session.events.overflowed
                else DisconnectReason.SERVER
            )
        if reason := _REASONS.get(self._end):
            usage = Usage(self._seconds)
            await self._send(
                SessionClosed(reason=reason, session=self._session_json(), usage=usage)
            )
        return self._end

    async def receive(self, text: str) -> None:
        """Applies one event of the client. An invalid event is answered with an `error` event, not
        raised."""
        if self._end is not None:
            return  # too late: the session accepts nothing any more
        self._note_activity()
        self._loop_share.begin_event(self._active_at)
        is_large = len(text) >= LARGE_EVENT_CHARS
        if self._loop_share.is_share_used(SAMPLES_PER_STEP if is_large else SAMPLES_PER_EVENT):
            await asyncio.sleep(0)
        event_id = None
        try:
            event = decode(text)
            event_id = event.event_id
            await self._apply(event)
        except EarshotError as error:
            await self._refuse(error, event_id)
        self._loop_share.end_event(self._now())

    @property
    def wants_quality(self) -> bool:
        """False: GPT-Live has no event about the quality of a connection."""
        return False

    async def send_quality(self, quality: ConnectionStats) -> None:
        """Does nothing, see `wants_quality`."""

    async def refuse_binary(self) -> None:
        """Answers a binary frame with an `error` event."""
        self._note_activity()
        message = "Binary frames are not allowed: audio goes as base64."
        await self._refuse(BadEvent(message, code="invalid_json"), None)

    async def refuse_too_large(self) -> None:
        """Answers a text that was too large for the transport with an `error` event."""
        await self._refuse(too_large(MAX_EVENT_BYTES), None)

    async def send_flood_error(self, unread: int) -> None:
        """Sends the last event of a client that sends faster than its events can be read."""
        message = f"The call ends: {unread} events wait to be read, and more came."
        await self._send(error_of("too_many_events", message))

    def close(self, end: DisconnectReason = DisconnectReason.CLIENT) -> None:
        """Asks `run` to end. The first reason stays."""
        if self._end is None:
            self._end = end
        self._session.close()

    # Audio of a transport with media of its own.

    def pull(self) -> AudioFrame | None:
        """Returns the next 20 ms of sound."""
        return self.audio.pull()

    def feed(self, frame: AudioFrame) -> None:
        """Takes audio of the microphone."""
        self.audio.feed(frame)

    # Events of the client.

    async def _apply(self, event: ClientEvent) -> None:
        """Applies a valid event. Raises EarshotError if the session refuses it."""
        if isinstance(event, LiveInputAppend):
            await self._append_audio(event)
            return
        session, event_id = self._session, event.event_id
        match event:
            case LiveSessionStart():
                raise Conflict(
                    "This session has started; another one needs another connection.",
                    code="session_already_started",
                    param="type",
                )
            case LiveSessionChange():
                await self._update(event)
            case InputMute():
                self.audio.is_muted = True
                await self._send(InputMuted(client_event_id=event_id))
            case InputUnmute():
                self.audio.is_muted = False
                await self._send(InputUnmuted(client_event_id=event_id))
            case InstructionsAppend() | ThinkingAppend() | CommentaryAppend():
                await self._append_text(event)
            case ResponseItemCreate(item=item):
                self._require_backend("response.item.create")
                session.add_item(responses_item(item))
            case BackendResponseCreate():
                self._require_backend("response.create")
                self._respond(ResponseRequest(metadata={ASKED: "yes"}))
            case SessionClose():
                self.close(DisconnectReason.CLOSED)
            case _:
                assert_never(event)

    async def _append_audio(self, event: LiveInputAppend) -> None:
        if self._transport != "websocket":
            raise RequestError(
                "'session.input_audio.append' is not for this transport: over WebRTC audio runs on"
                " the media track.",
                code="unsupported_event",
                param="type",
            )
        self._audio_input.push(event.audio)
        for frame in self._audio_input.take():
            if self._loop_share.is_share_used(len(frame.pcm)):
                await asyncio.sleep(0)
            self.audio.feed(frame)

    async def _append_text(self, event: AppendEvent) -> None:
        appended = self._translator.delegations.appended(event)
        self._session.add_item(appended.item)
        now_ms = self._now_ms
        told = _APPENDED[type(event)]
        await self._send(told(start_ms=now_ms, end_ms=now_ms, client_event_id=event.event_id))
        if appended.is_spoken:
            self._respond(ResponseRequest())

    async def _update(self, event: LiveSessionChange) -> None:
        """Applies a session update. All checks come before the first change."""
        configuration = updated(self._translator.configuration, event.session)
        shown = SessionUpdated(
            session=self._session_json(configuration), client_event_id=event.event_id
        )
        self._check_size(shown, "session")
        with params_below("session"):
            self._session.configure(configuration.session.settings)
        self._translator.configuration = configuration
        await self._send(shown)

    def _respond(self, request: ResponseRequest) -> None:
        """Asks for a response, or for one after that which is being made. Raises RequestError."""
        self._waiting_request = None
        try:
            self._session.create_response(request)
        except Conflict as conflict:
            if conflict.code != "conversation_already_has_active_response":
                raise
            self._waiting_request = request

    async def _respond_now(self) -> None:
        """Asks again for the response that had to wait."""
        if self._waiting_request is not None:
            try:
                self._respond(self._waiting_request)
            except EarshotError as error:
                await self._refuse(error, None)

    def _answer_call(self, item: Item) -> None:
        """Gives the model the result of its call, if it delegated a task to the application."""
        is_clients = self._translator.configuration.backend is None
        if is_clients and isinstance(item, FunctionCallItem):
            self._session.add_item(delegated_result(item))

    def _require_backend(self, name: str) -> None:
        if self._translator.configuration.backend is None:
            raise RequestError(
                f"{name} requires Responses delegation; this session has client delegation.",
                code="unsupported_event",
                param="type",
            )

    # Events to the client.

    async def _refuse(self, error: EarshotError, event_id: str | None) -> None:
        """Counts an error and answers it."""
        if isinstance(error, BadEvent):
            event_id = error.event_id
        self._metrics.count("earshot_errors", code=error.code)
        await self._send(error_event(error, event_id))

    async def _send_sound(self, sound: str) -> None:
        await self._send(LiveSoundDelta(delta=sound))

    async def _send(self, event: ServerEvent) -> None:
        """Sends an event. If the client cannot be reached, the session ends and nothing more is
        sent to it."""
        if self._end in (DisconnectReason.CLIENT, DisconnectReason.LAGGING):
            return
        text = self._encoder.text(event)
        limit = self._max_event_bytes
        if limit is not None and 4 * len(text) > limit and len(text.encode()) > limit:
            message = "An event is too large for this client's data channel: it is not sent."
            text = self._encoder.text(error_of("event_too_large", message, is_clients=False))
        try:
            await self._send_text(text)
        except ClientDisconnected:
            self.close(DisconnectReason.CLIENT)
        except SlowClient:
            self.close(DisconnectReason.LAGGING)

    def _check_size(self, event: ServerEvent, param: str) -> None:
        """Raises RequestError if the client could not receive this event."""
        if self._max_event_bytes is None:
            return
        size = len(self._encoder.text(event).encode())
        if size > self._max_event_bytes:
            raise RequestError(
                f"'{param}' makes an event of {size} bytes; the limit of this client's data"
                f" channel is {self._max_event_bytes}.",
                code="event_too_large",
                param=param,
            )

    async def _tell_clauses(self) -> None:
        async for clause in self._clauses:
            await self._send(self._translator.spoken(clause, self._now_ms))

    async def _tell_usage(self) -> None:
        while True:
            await asyncio.sleep(USAGE_EVERY_S)
            await self._send(UsageUpdated(usage=Usage(self._seconds)))

    def _session_json(self, configuration: LiveConfiguration | None = None) -> dict[str, object]:
        return session_json(
            configuration or self._translator.configuration,
            self._id,
            self._expires_at,
            has_format=self._transport == "websocket",
        )

    # Time.

    @property
    def _now_ms(self) -> int:
        return round(1000 * (self._now() - self._began_at))

    @property
    def _seconds(self) -> int:
        return round(self._now() - self._began_at)

    def _note_activity(self) -> None:
        self._active_at = self._now()
        self._idle_alarm.set(self._active_at + self._idle_timeout_s)

    async def _end_when_idle(self) -> None:
        await self._idle_alarm.wait()
        message = f"The session ends: nothing happened for {self._idle_timeout_s:g} s."
        await self._send(error_of("session_idle", message))
        self.close(DisconnectReason.IDLE)

    async def _end_when_expired(self) -> None:
        await asyncio.sleep(self._lasts_s)
        message = "The session ends: its time is over."
        await self._send(error_of("session_expired", message))
        self.close(DisconnectReason.EXPIRED)


def error_event(error: EarshotError, client_event_id: str | None) -> ErrorOccurred:
    """Returns the event for an error of a client's request."""
    return error_of(
        error.code,
        str(error),
        is_clients=isinstance(error, RequestError),
        param=error.param if isinstance(error, RequestError) else None,
        client_event_id=client_event_id,
    )
