"""Connects one client and its session, independent of the transport: applies client events, sends
server events."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import assert_never

from core.audio import AudioFrame
from core.conversation.events import ItemAdded, SessionEvent
from core.errors import EarshotError, RequestError
from core.net.connection_stats import ConnectionStats
from core.ports import Metrics
from pipeline.session.session import Session
from pipeline.tools.home import Home
from signaling.realtime.client_secrets import check_type
from signaling.realtime.event_connection import EventConnection
from signaling.realtime.protocol.audio_input import InputAudioDecoder, decode_recordings
from signaling.realtime.protocol.client_events import (
    ClientEvent,
    InputAppend,
    InputClear,
    InputCommit,
    ItemCreate,
    ItemDelete,
    ItemRetrieve,
    ItemTruncate,
    OutputClear,
    ResponseCancel,
    ResponseCreate,
    SessionUpdate,
)
from signaling.realtime.protocol.conversation_events import conversation_event
from signaling.realtime.protocol.input_rate import PARAM, WARNING, SampleRateCheck
from signaling.realtime.protocol.server_events import QUALITY_EVENT, Json
from signaling.realtime.protocol.translator import EventTranslator, Transport
from signaling.realtime.protocol.validation import item_error_code, params_below
from signaling.realtime.session.items import new_item
from signaling.realtime.session.response import response_request
from signaling.realtime.session.settings import (
    SessionConfiguration,
    apply_session_update,
    check_unchanged,
)
from signaling.realtime.transports.event_size import EventSizeLimit
from signaling.realtime.transports.sideband_outbox import SidebandOutbox

logger = logging.getLogger(__name__)

PADDING_PARAM = "session.earshot.transcription.padding"
"Field that a warning about padding names."

MAX_UNREAD_EVENTS = 256
"A new item waits until fewer events than this wait for the client."


class RealtimeConnection(EventConnection[ClientEvent, Json, SidebandOutbox]):
    """Connection of one client of the Realtime API to its session."""

    expiry_message = "The session ends: the client secret that opened it has expired."

    def __init__(
        self,
        session: Session,
        configuration: SessionConfiguration,
        send: Callable[[str], Awaitable[None]],
        metrics: Metrics,
        *,
        transport: Transport,
        idle_timeout_s: float,
        home: Home | None = None,
        max_event_bytes: int | None = None,
    ) -> None:
        """Prepares the connection; `run` serves it.

        `session`: what the client's events act on. `configuration`: the session's configuration.
        `send`: sends one text to the client. `idle_timeout_s`: the session ends after this time
        without an event or speech. `home`: source of `earshot.home` events. `max_event_bytes`:
        largest text that the transport takes; None: no limit.

        Raises RequestError if the event that shows this configuration would be larger.
        """
        holder = configuration.secret_holder
        super().__init__(
            session,
            send,
            metrics,
            transport=transport,
            idle_timeout_s=idle_timeout_s,
            lasts_s=None if holder is None else holder.ends_in_s,
        )
        self._home = home
        self._translator = EventTranslator(
            configuration, session.id, session.conversation_id, transport=transport
        )
        self._translator.fallback_padding = session.fallback_padding
        self._size_limit = EventSizeLimit(self._translator, max_event_bytes)
        self._size_limit.check(self._translator.shown(configuration), "session")
        self._audio_input = InputAudioDecoder(configuration.input_format)
        self._input_rate = SampleRateCheck()
        self._home_task: asyncio.Task[None] | None = None
        self._watched_language: str | None = None
        "Language in which the client watches the home."

    async def _begin(self) -> None:
        for first_event in self._translator.created():
            await self._send(first_event)
        await self._warn_of_padding()
        self._follow_home()

    async def _tell(self, session_event: SessionEvent) -> None:
        for out in self._translator.to_json(session_event):
            await self._send(out)

    def join(self, sideband: SidebandOutbox) -> None:
        """Adds a sideband connection: it gets `session.created`, then all events from now on."""
        for first_event in self._translator.created():
            sideband.send(first_event)
        super().join(sideband)

    @property
    def wants_quality(self) -> bool:
        """True if the client asked for events about the quality of its connection."""
        return QUALITY_EVENT in self._translator.configuration.include

    async def send_quality(self, quality: ConnectionStats) -> None:
        """Sends the connection's quality, if the client asked for it."""
        if self.wants_quality:
            await self._send(self._translator.connection(quality))

    def _decode(self, text: str, sideband: SidebandOutbox | None) -> ClientEvent:
        return sideband.read(text) if sideband else self._translator.receive(text)

    async def _apply(self, event: ClientEvent, sideband: SidebandOutbox | None) -> None:
        if isinstance(event, InputAppend):
            await self._append_audio(event)
            return
        await self._feed(self._audio_input.take())  # audio that came before the event goes first
        session = self._session
        match event:
            case SessionUpdate():
                await self._update(event)
            case InputCommit():
                session.commit_input()
            case InputClear():
                session.clear_input()
            case OutputClear():
                self._require_transport("webrtc", "output_audio_buffer.clear")
                session.clear_output()
            case ItemCreate():
                await self._add_item(event)
            case ItemDelete(item_id=item_id):
                with item_error_code("delete"):
                    session.delete_item(item_id)
            case ItemRetrieve(item_id=item_id):
                with item_error_code("retrieve"):
                    session.retrieve_item(item_id)
            case ItemTruncate(item_id=item_id, audio_end_ms=audio_end_ms):
                with item_error_code("truncate"):
                    session.truncate(item_id, audio_end_ms)
            case ResponseCreate(response=params):
                prompts = self._translator.configuration.settings.prompts
                session.create_response(response_request(params, prompts))
            case ResponseCancel(response_id=response_id):
                session.cancel_response(response_id)
            case _:
                assert_never(event)

    async def _update(self, event: SessionUpdate) -> None:
        """Applies a session update. All checks come before the first change."""
        configuration = apply_session_update(self._translator.configuration, event.session)
        check_unchanged(self._translator.configuration, configuration)
        check_type(self._translator.configuration, configuration)
        self._size_limit.check(self._translator.shown(configuration), "session")
        with params_below("session"):
            self._session.configure(configuration.settings)
        before, self._translator.configuration = (
            self._translator.configuration.settings,
            configuration,
        )
        self._translator.fallback_padding = self._session.fallback_padding
        self._audio_input.expect(configuration.input_format)
        await self._send(self._translator.updated())
        if (before.asr, before.padding) != (
            configuration.settings.asr,
            configuration.settings.padding,
        ):
            await self._warn_of_padding()
        self._follow_home()

    async def _warn_of_padding(self) -> None:
        """Sends a warning if the client's padding does not fit its model and was replaced."""
        settings, used_padding = (
            self._translator.configuration.settings,
            self._translator.fallback_padding,
        )
        if used_padding is not None:
            message = (
                f"The model {settings.asr!r} was not trained for the padding "
                f"{settings.padding!r}: {used_padding!r} is used."
            )
            await self._send(self._translator.warning("padding_replaced", message, PADDING_PARAM))

    async def _add_item(self, event: ItemCreate) -> None:
        """Adds an item. It waits while many events are unread: images are sent back to the client,
        so it must read to send more."""
        made = new_item(event.item)
        self._size_limit.check(conversation_event(ItemAdded(made.item, None)), "item")
        recordings = await decode_recordings(
            made.recordings, self._translator.configuration.input_format
        )
        await self._session.events.room(MAX_UNREAD_EVENTS)
        self._session.add_item(made.item, event.previous_item_id, recordings)

    async def _append_audio(self, event: InputAppend) -> None:
        """Takes audio of the client. Without turn detection it is gathered into large frames."""
        self._require_transport("websocket", "input_audio_buffer.append")
        if event.event_id != self._translator.appended:
            await asyncio.sleep(0)  # errors that are due now belong to the previous event
            self._translator.appended = event.event_id
        audio_ms = self._audio_input.push(event.audio)
        if not self._translator.configuration.says_input_rate:
            await self._check_rate(audio_ms)
        # Without turn detection nothing happens until the client commits, so no frame is urgent.
        gathers_audio = self._translator.configuration.settings.turn_detection is None
        if not gathers_audio or self._audio_input.has_slice:
            await self._feed(self._audio_input.take())

    async def _check_rate(self, audio_ms: float) -> None:
        """Sends a warning once if the audio's real rate is evidently not the declared one."""
        if self._input_rate.is_suspect(1000 * self._now(), audio_ms):
            logger.warning(
                "! session %s: its audio seems to have 16 kHz instead of 24 kHz", self._session.id
            )
            await self._send(self._translator.warning("input_rate_suspected", WARNING, PARAM))

    async def _feed(self, frames: Iterable[AudioFrame]) -> None:
        for frame in frames:
            if self._loop_share.is_share_used(len(frame.pcm)):
                await asyncio.sleep(0)
            self._session.feed(frame)

    def _error(self, error: EarshotError, event_id: str | None = None) -> Json:
        is_client_error = isinstance(error, RequestError)
        return self._translator.error(
            error.code,
            str(error),
            kind="invalid_request_error" if is_client_error else "server_error",
            param=error.param if isinstance(error, RequestError) else None,
            event_id=event_id,
        )

    def _flood_error(self, code: str, message: str) -> Json:
        return self._translator.error(code, message, kind="rate_limit_error")

    def _text(self, out: Json) -> str | None:
        return self._size_limit.text(out)

    def _put(self, sideband: SidebandOutbox, out: Json) -> None:
        sideband.send(out)

    def _follow_home(self) -> None:
        """Starts or stops watching the home, as the client's settings say, in the session's
        language."""
        configuration = self._translator.configuration
        wanted = self._home is not None and "earshot.home" in configuration.include
        language = configuration.settings.language
        if self._home_task is not None:
            if wanted and language == self._watched_language:
                return
            self._home_task.cancel()
            self._home_task = None
        if wanted and self._tasks is not None:
            self._watched_language = language
            self._home_task = self._start(self._send_home(language), "home")

    async def _send_home(self, language: str | None) -> None:
        assert self._home is not None
        async with aclosing(self._home.watch(language)) as states:
            async for state in states:
                await self._send(self._translator.home(state))
