"""Translates session events to Realtime server events, and client texts to client events. No
I/O."""

from dataclasses import replace
from typing import Literal, assert_never

from core.conversation.events import (
    ErrorEvent,
    FunctionCallArgumentsDelta,
    HypothesisChanged,
    InputCleared,
    InputCommitted,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ItemTruncated,
    McpCallArgumentsDelta,
    McpCallProgress,
    McpListToolsProgress,
    OutputAudioDelta,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ResponseCreated,
    ResponseDone,
    ServerToolItem,
    SessionEvent,
    SpeakerRecognised,
    SpeechDiscarded,
    SpeechStarted,
    SpeechStopped,
    TimeoutTriggered,
    TranscriptionCompleted,
    TranscriptionFailed,
    TurnTimeline,
    WakeStateChanged,
)
from core.conversation.usage import RateLimits
from core.net.connection_stats import ConnectionStats
from engines.base import AsrPadding
from signaling.realtime.protocol.beta import is_beta_update, to_beta, to_ga
from signaling.realtime.protocol.client_events import ClientEvent
from signaling.realtime.protocol.conversation_events import (
    InputEventEncoder,
    ResponseEventEncoder,
    conversation_event,
    transcription,
)
from signaling.realtime.protocol.decode import decode
from signaling.realtime.protocol.server_events import (
    QUALITY_EVENT,
    SPEAKER_EVENT,
    Json,
    connection_json,
    error_event,
    event,
    limits_json,
    speaker_json,
    to_text,
    tool_json,
    turn_json,
    wake_json,
)
from signaling.realtime.session.settings import SessionConfiguration, session_json

Transport = Literal["webrtc", "websocket"]
ErrorKind = Literal["invalid_request_error", "server_error", "rate_limit_error"]


class EventTranslator:
    """Translator of one connection. It remembers only what later events need from earlier ones."""

    def __init__(
        self,
        configuration: SessionConfiguration,
        session_id: str,
        conversation_id: str,
        *,
        transport: Transport,
    ) -> None:
        self.configuration = replace(configuration, conversation_id=conversation_id)
        self._session_id, self._conversation_id = session_id, conversation_id
        self._transport = transport
        self.fallback_padding: AsrPadding | None = None
        "Padding that the recogniser uses instead of the requested one; None if it uses that one."
        self._event_count = 0
        self._has_received = False
        self.appended: str | None = None
        "Client's id of the event whose audio was fed last."
        self._input = InputEventEncoder()
        self._responses = ResponseEventEncoder(
            conversation_id, sends_audio=transport == "websocket"
        )

    def receive(self, text: str) -> ClientEvent:
        """Decodes one text of the client. Raises BadEvent."""
        is_ga = self._has_received and not self.configuration.is_beta
        return decode(text, None if is_ga else self._reshaped)

    def _reshaped(self, raw: Json) -> Json:
        if not self._has_received:
            self._has_received = True
            if is_beta_update(raw):  # the client has already read `session.created` in the GA shape
                self.configuration = replace(self.configuration, is_beta=True)
        return to_ga(raw) if self.configuration.is_beta else raw

    def created(self) -> list[Json]:
        """Returns the first events of a connection."""
        begun = [event("session.created", session=self._session_json(self.configuration))]
        if self.configuration.settings.answers:  # a transcription session has no conversation
            conversation = {"id": self._conversation_id, "object": "realtime.conversation"}
            begun.append(event("conversation.created", conversation=conversation))
        return [self._numbered(out) for out in begun]

    def updated(self) -> Json:
        """Returns the event that shows the session after an update."""
        return self._numbered(self.shown(self.configuration))

    def shown(self, configuration: SessionConfiguration) -> Json:
        """Returns the event for an update to this configuration, without an event id."""
        return event("session.updated", session=self._session_json(configuration))

    def error(
        self,
        code: str,
        message: str,
        *,
        kind: ErrorKind = "invalid_request_error",
        param: str | None = None,
        event_id: str | None = None,
    ) -> Json:
        """Returns an `error` event, see `error_event`."""
        return self._numbered(error_event(code, message, kind=kind, param=param, event_id=event_id))

    def warning(self, code: str, message: str, param: str) -> Json:
        """Returns our own event for a problem that did not make anything fail."""
        return self._numbered(event("earshot.warning", code=code, message=message, param=param))

    def home(self, home: object) -> Json:
        """Returns the event for the state of the home. `home`: any value that can be encoded as
        JSON."""
        return self._numbered(event("earshot.home", home=home))

    def connection(self, quality: ConnectionStats) -> Json:
        """Returns the event about the connection's quality."""
        return self._numbered(event(QUALITY_EVENT, connection=connection_json(quality)))

    def to_json(self, session_event: SessionEvent) -> list[Json]:
        """Returns the server events for one session event, in sending order."""
        if (
            isinstance(session_event, OutputAudioDelta | PlayoutStarted)
            and not self.configuration.has_spoken
        ):
            self.configuration = replace(self.configuration, has_spoken=True)
        return [self._numbered(out) for out in self._translated(session_event)]

    def to_text(self, out: Json) -> str | None:
        """Returns an event as text in the client's shape; None if that shape has no such event."""
        shown = to_beta(out) if self.configuration.is_beta else out
        return None if shown is None else to_text(shown)

    def _session_json(self, configuration: SessionConfiguration) -> Json:
        """Returns the session object with the values in effect."""
        padding = self.fallback_padding or configuration.settings.padding
        in_effect = replace(
            configuration, settings=replace(configuration.settings, padding=padding)
        )
        return session_json(in_effect, self._session_id)

    def _numbered(self, out: Json) -> Json:
        self._event_count += 1
        return {"type": out["type"], "event_id": f"evt_{self._event_count}", **out}

    def _translated(self, session_event: SessionEvent) -> list[Json]:
        match session_event:
            case (
                SpeechStarted()
                | SpeechStopped()
                | SpeechDiscarded()
                | TimeoutTriggered()
                | InputCommitted()
                | InputCleared()
            ):
                return self._input.encode(session_event)
            case HypothesisChanged() | TranscriptionCompleted() | TranscriptionFailed():
                return transcription(session_event, self.configuration)
            case ItemAdded() | ItemDone() | ItemTruncated() | ItemDeleted() | ItemRetrieved():
                return [conversation_event(session_event)]
            case (
                ResponseCreated()
                | OutputItemAdded()
                | OutputTextDelta()
                | OutputAudioDelta()
                | FunctionCallArgumentsDelta()
                | McpCallArgumentsDelta()
                | McpCallProgress()
                | OutputItemDone()
                | ResponseDone()
            ):
                return self._responses.encode(session_event, self.configuration)
            case RateLimits():
                return [event("rate_limits.updated", rate_limits=limits_json(session_event))]
            case McpListToolsProgress(item_id=item_id, stage=stage):
                return [event(f"mcp_list_tools.{stage}", item_id=item_id)]
            case PlayoutStarted() | PlayoutStopped() | PlayoutCleared():
                return self._playout(session_event)
            case SpeakerRecognised(item_id=item_id, speaker=speaker):
                shown = "earshot.turn" in self.configuration.include
                heard = event(SPEAKER_EVENT, item_id=item_id, speaker=speaker_json(speaker))
                return [heard] if shown else []
            case TurnTimeline():
                shown = "earshot.turn" in self.configuration.include
                return [event("earshot.turn", turn=turn_json(session_event))] if shown else []
            case ServerToolItem():
                shown = "earshot.tool" in self.configuration.include
                return [event("earshot.tool", **tool_json(session_event))] if shown else []
            case WakeStateChanged():
                shown = "earshot.wake" in self.configuration.include
                return [event("earshot.wake", wake=wake_json(session_event))] if shown else []
            case ErrorEvent(code, message, is_clients):
                if not is_clients:
                    return [error_event(code, message, kind="server_error")]
                kind, event_id = "invalid_request_error", self.appended
                return [error_event(code, message, kind=kind, event_id=event_id)]
            case _:
                assert_never(session_event)

    def _playout(
        self, session_event: PlayoutStarted | PlayoutStopped | PlayoutCleared
    ) -> list[Json]:
        if self._transport == "websocket":  # the client paces its own playout
            return []
        match session_event:
            case PlayoutStarted():
                stage = "started"
            case PlayoutStopped():
                stage = "stopped"
            case PlayoutCleared():
                stage = "cleared"
            case _:
                assert_never(session_event)
        return [event(f"output_audio_buffer.{stage}", response_id=session_event.response_id)]
