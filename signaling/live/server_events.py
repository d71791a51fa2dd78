"""Events that a GPT-Live client gets, as frozen values. No state."""

from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from core.conversation.items import FunctionCallItem
from core.conversation.usage import TokenUsage

CloseReason = Literal["close_requested", "expired", "remote_hangup", "connection_lost"]
"End of a session. OpenAI's service also has `content`, for its safety filter."

BackendStatus = Literal["completed", "failed", "incomplete"]
"End of a response in the Responses API."


class ServerEvent(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of all server events."""


class NumberedEvent(ServerEvent, frozen=True, kw_only=True):
    """Event with an id. The connection gives it when it sends the event."""

    event_id: str = ""
    client_event_id: str | None = None
    "Client's id of the event that this one answers."


class SpanEvent(NumberedEvent, frozen=True, kw_only=True):
    """Event with a place in the session, in ms from its start."""

    start_ms: int
    end_ms: int


class SessionStarted(NumberedEvent, frozen=True, kw_only=True, tag="session.started"):
    session: dict[str, Any]


class SessionUpdated(NumberedEvent, frozen=True, kw_only=True, tag="session.updated"):
    session: dict[str, Any]


class InputMuted(NumberedEvent, frozen=True, tag="session.input_audio.muted"):
    pass


class InputUnmuted(NumberedEvent, frozen=True, tag="session.input_audio.unmuted"):
    pass


class InstructionsAppended(SpanEvent, frozen=True, tag="session.instructions.appended"):
    pass


class ThinkingAppended(SpanEvent, frozen=True, tag="session.thinking.appended"):
    pass


class CommentaryAppended(SpanEvent, frozen=True, tag="session.commentary.appended"):
    pass


class InputTranscriptDelta(
    SpanEvent, frozen=True, kw_only=True, tag="session.input_transcript.delta"
):
    """More of what the user said."""

    delta: str


class OutputTranscriptDelta(
    SpanEvent, frozen=True, kw_only=True, tag="session.output_transcript.delta"
):
    """More of what the assistant says: a clause, when its sound begins."""

    delta: str


class LiveSoundDelta(ServerEvent, frozen=True, kw_only=True, tag="session.output_audio.delta"):
    """Next sound, to be played at once. It has no id, as in OpenAI's service."""

    delta: str
    start_ms: int | None = None
    end_ms: int | None = None
    "Place in the session. Only sideband connections get it."


class ReflectedInput(ServerEvent, frozen=True, kw_only=True, tag="session.input_audio.append"):
    """Sound of the microphone, for a sideband connection."""

    audio: str


class DelegationObject(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag="delegation", tag_field="type"
):
    """A delegated task. It holds no text: the application knows the conversation."""

    id: str
    target: Literal["client", "responses"]
    response_id: str | None = None


class DelegationCreated(NumberedEvent, frozen=True, kw_only=True, tag="session.delegation.created"):
    delegation: DelegationObject
    offset_ms: int


class ResponseEvent(NumberedEvent, frozen=True, kw_only=True, tag="response.event"):
    """Event of the Responses API about a delegated task."""

    event: dict[str, Any]
    delegation_id: str | None = None


class Usage(Struct, frozen=True):
    """Length of the session so far."""

    seconds: int


class UsageUpdated(NumberedEvent, frozen=True, kw_only=True, tag="session.usage.updated"):
    usage: Usage


class SessionClosed(NumberedEvent, frozen=True, kw_only=True, tag="session.closed"):
    reason: CloseReason
    session: dict[str, Any]
    usage: Usage


class LiveErrorBody(Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: str
    code: str
    message: str
    param: str | None = None
    client_event_id: str | None = None


class ErrorOccurred(NumberedEvent, frozen=True, kw_only=True, tag="error"):
    error: LiveErrorBody


EventT = TypeVar("EventT", bound=ServerEvent)


class EventEncoder:
    """Encodes the events of one connection, and counts them."""

    def __init__(self) -> None:
        self._count = 0

    def numbered(self, event: EventT) -> EventT:
        """Returns the event with its id, if it is of a kind that has one and has none yet."""
        if not isinstance(event, NumberedEvent) or event.event_id:
            return event
        self._count += 1
        return replace(event, event_id=f"event_{self._count}")

    def text(self, event: ServerEvent) -> str:
        """Returns the event as JSON text, with its id."""
        return encode(self.numbered(event)).decode()


def error_of(
    code: str,
    message: str,
    *,
    is_clients: bool = True,
    param: str | None = None,
    client_event_id: str | None = None,
) -> ErrorOccurred:
    """Builds an `error` event. `is_clients`: the client caused it, by a wrong event."""
    return ErrorOccurred(
        client_event_id=client_event_id,
        error=LiveErrorBody(
            type="invalid_request_error" if is_clients else "server_error",
            code=code,
            message=message,
            param=param,
            client_event_id=client_event_id,
        ),
    )


# Events of the Responses API, inside `response.event`.


def response_created(response_id: str, model: str) -> dict[str, Any]:
    """Builds the event for the begin of a response."""
    return {"type": "response.created", "response": _response(response_id, model, "in_progress")}


def call_done(call: FunctionCallItem, output_index: int) -> dict[str, Any]:
    """Builds the event for a call of a client's tool, with its whole arguments."""
    return {
        "type": "response.output_item.done",
        "output_index": output_index,
        "item": {
            "type": "function_call",
            "id": call.id,
            "call_id": call.call_id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        },
    }


def response_ended(
    response_id: str,
    model: str,
    status: BackendStatus,
    usage: TokenUsage,
    error: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Builds the event for the end of a response."""
    response = _response(response_id, model, status) | {
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
        "error": error,
    }
    return {"type": f"response.{status}", "response": response}


def _response(response_id: str, model: str, status: str) -> dict[str, Any]:
    """Builds a response object. As in OpenAI's service its output is empty: items have events of
    their own."""
    return {
        "id": response_id,
        "object": "response",
        "model": model,
        "status": status,
        "output": [],
        "usage": None,
        "error": None,
    }
