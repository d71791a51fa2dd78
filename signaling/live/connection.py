"""Connects one GPT-Live client and its session, independent of the transport."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import assert_never

from core.audio import AudioFrame, samples_to_ms
from core.conversation.events import OutputItemDone, ResponseDone, SessionEvent
from core.conversation.items import FunctionCallItem, Item
from core.errors import Conflict, EarshotError, RequestError
from core.ports import Metrics
from core.queues import Outbox
from media.pcm import to_bytes
from pipeline.session.session import Session
from pipeline.shared.settings import ResponseRequest
from signaling.live.audio import LiveAudioPath, PacedSender, ReflectedSound
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
    ReflectedInput,
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
from signaling.realtime.event_connection import DisconnectReason, EventConnection
from signaling.realtime.protocol.audio_format import WIRE_RATE_HZ
from signaling.realtime.protocol.audio_input import InputAudioDecoder
from signaling.realtime.protocol.translator import Transport
from signaling.realtime.protocol.validation import params_below
from signaling.realtime.transports.sideband_queue import SidebandQueue

MAX_SESSION_S = 24 * 3600
"""Longest session in seconds. A client is told when its session expires, so there must be a limit;
a day is more than any conversation needs."""

USAGE_EVERY_S = 15
"Interval of `session.usage.updated`, as seen from OpenAI's service."

MAX_UNTOLD_CLAUSES = 256
"Clauses that began and were not told yet. They wait only while an event is being sent."

_REASONS: Mapping[DisconnectReason, CloseReason] = {
    DisconnectReason.CLIENT: "remote_hangup",
    DisconnectReason.HUNG_UP: "close_requested",
    DisconnectReason.LOST: "connection_lost",
    DisconnectReason.CLOSED: "close_requested",
    DisconnectReason.IDLE: "expired",
    DisconnectReason.EXPIRED: "expired",
    DisconnectReason.LAGGING: "connection_lost",
    DisconnectReason.SERVER: "connection_lost",
}
"End of the session -> reason that is told: to its client if it is there, and to its sidebands."

_APPENDED: Mapping[type[AppendEvent], type[SpanEvent]] = {
    InstructionsAppend: InstructionsAppended,
    ThinkingAppend: ThinkingAppended,
    CommentaryAppend: CommentaryAppended,
}
"Append -> the event that tells that it is done."


class LiveConnection(EventConnection[ClientEvent, ServerEvent, SidebandQueue]):
    """Connection of one client of GPT-Live to its session."""

    expiry_message = "The session ends: its time is over."

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
        holder = configuration.session.secret_holder
        left_s = None if holder is None else holder.ends_in_s
        lasts_s = MAX_SESSION_S if left_s is None else min(MAX_SESSION_S, left_s)
        super().__init__(
            session,
            send,
            metrics,
            transport=transport,
            idle_timeout_s=idle_timeout_s,
            lasts_s=lasts_s,
        )
        self.id = session_id or session.id
        "Id of the session, as its client knows it."
        self._max_event_bytes, self._start_event_id = max_event_bytes, start_event_id
        self._expires_at = int(wall_s + lasts_s)
        self._translator = LiveTranslator(configuration)
        self._encoder = EventEncoder()
        self._clauses: Outbox[str] = Outbox(MAX_UNTOLD_CLAUSES)
        self._input, self._output = ReflectedSound(), ReflectedSound()
        self._output_end_ms = 0
        "End of the assistant's sound that the sideband connections got."
        self.audio = LiveAudioPath(
            session, self._clauses.put, self._reflect_input, self._reflect_output
        )
        self._audio_input = InputAudioDecoder(configuration.session.input_format)
        self._sender = PacedSender(
            self.audio, session, configuration.session.output_format, self._send_sound
        )
        self._waiting_request: ResponseRequest | None = None
        "Response that was asked for while another one was made; it begins after that."
        self._began_at = self._now()
        with params_below("session"):
            self._check_size(SessionUpdated(session=self._session_json()), "instructions")
            for message in configuration.history:
                session.add_item(message)

    async def _begin(self) -> None:
        await self._send(
            SessionStarted(session=self._session_json(), client_event_id=self._start_event_id)
        )
        self._start(self._tell_usage(), "usage")
        self._start(self._tell_clauses(), "clauses")
        if self._transport == "websocket":
            self._start(self._sender.run(), "playout")

    async def _tell(self, session_event: SessionEvent) -> None:
        self._sender.changed.set()
        for event in self._translator.translated(session_event, self._now_ms):
            await self._send(event)
        if isinstance(session_event, OutputItemDone):
            self._answer_call(session_event.item)
        if isinstance(session_event, ResponseDone):
            await self._respond_now()

    async def _finish(self, end: DisconnectReason) -> None:
        usage = Usage(self._seconds)
        closed = SessionClosed(reason=_REASONS[end], session=self._session_json(), usage=usage)
        await self._send(closed)

    # Audio of a transport with media of its own.

    def pull(self) -> AudioFrame | None:
        """Returns the next 20 ms of sound."""
        return self.audio.pull()

    def feed(self, frame: AudioFrame) -> None:
        """Takes audio of the microphone."""
        self.audio.feed(frame)

    # Events of the client.

    def _decode(self, text: str, sideband: SidebandQueue | None) -> ClientEvent:
        return decode(text)

    async def _apply(self, event: ClientEvent, sideband: SidebandQueue | None) -> None:
        if isinstance(event, LiveInputAppend):
            await self._append_audio(event, sideband)
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

    async def _append_audio(self, event: LiveInputAppend, sideband: SidebandQueue | None) -> None:
        if sideband is not None:
            raise RequestError(
                "'session.input_audio.append' is not for a sideband connection: the session gets"
                " its audio from the client that started it.",
                code="unsupported_event",
                param="type",
            )
        self._require_transport("websocket", "session.input_audio.append")
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

    def _numbered(self, out: ServerEvent) -> ServerEvent:
        return self._encoder.numbered(out)

    def _error(self, error: EarshotError, event_id: str | None = None) -> ServerEvent:
        return error_event(error, event_id)

    def _flood_error(self, code: str, message: str) -> ServerEvent:
        return error_of(code, message)

    def _text(self, out: ServerEvent) -> str:
        text = self._encoder.text(out)
        limit = self._max_event_bytes
        if limit is None or 4 * len(text) <= limit or len(text.encode()) <= limit:
            return text
        message = "An event is too large for this client's data channel: it is not sent."
        return self._encoder.text(error_of("event_too_large", message, is_clients=False))

    def _put(self, sideband: SidebandQueue, out: ServerEvent) -> None:
        sideband.put(self._encoder.text(out))

    async def _send_sound(self, sound: str) -> None:
        await self._send(LiveSoundDelta(delta=sound), to_sidebands=False)

    def _reflect_input(self, frame: AudioFrame) -> None:
        """Sends sound of the microphone to the sideband connections."""
        if self.sidebands and (pcm := self._input.push(frame)) is not None:
            self._reflect(ReflectedInput(audio=b64encode(to_bytes(pcm)).decode()))

    def _reflect_output(self, frame: AudioFrame | None) -> None:
        """Sends sound of the assistant to the sideband connections."""
        if not self.sidebands:
            return
        pcm = self._output.rest() if frame is None else self._output.push(frame)
        if pcm is None:
            return
        # The client may have got this sound ahead of time, so it begins after the sound before it.
        start_ms = max(self._output_end_ms, self._now_ms)
        self._output_end_ms = start_ms + round(samples_to_ms(len(pcm), WIRE_RATE_HZ))
        sound = b64encode(to_bytes(pcm)).decode()
        self._reflect(LiveSoundDelta(delta=sound, start_ms=start_ms, end_ms=self._output_end_ms))

    def _reflect(self, event: ServerEvent) -> None:
        for sideband in self.sidebands:
            self._put(sideband, event)

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
            self.id,
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


def error_event(error: EarshotError, client_event_id: str | None) -> ErrorOccurred:
    """Returns the event for an error of a client's request."""
    return error_of(
        error.code,
        str(error),
        is_clients=isinstance(error, RequestError),
        param=error.param if isinstance(error, RequestError) else None,
        client_event_id=client_event_id,
    )
