"""Code that the Realtime clients of all transports share."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from bench.client.connection_stats import QUALITY_EVENT
from core.audio import AudioFrame
from core.errors import EarshotError

Json = dict[str, Any]
"Event as a JSON object."

ClientTransport = Literal["webrtc", "ws", "live"]
"Way to connect: the Realtime API over WebRTC or a WebSocket, or GPT-Live over a WebSocket."

OnSound = Callable[[AudioFrame, float], None]
"Function that takes received audio and its time of arrival, in the event loop's seconds."

CONNECT_TIMEOUT_S = 15
"""Limit for TCP, TLS, the call and the first event; ICE alone may take some seconds on a bad
network."""

UPDATE_TIMEOUT_S = 3
"Limit for the answer to `session.update`, which needs no model."

MAX_UNREAD_EVENTS = 4096
"Limit of unread events: only a client that hangs reaches it."

EARSHOT_EVENTS = ("earshot.hypothesis", "earshot.turn", QUALITY_EVENT)
"Types of the events that only Earshot sends, and only if a client asks for them."

TRANSCRIPTION_MODEL = "whisper-1"
"Name that every Realtime server knows. Earshot uses its default recogniser for it."

_EARSHOT_EVENTS_ID = "earshot-events"
_SETTINGS_ID = "session-settings"
"""Ids of the two `session.update` events that the client sends. An error event has the id of the
event that caused it."""


class CannotConnect(EarshotError):
    """The server cannot be reached, or refused the client."""

    code = "cannot_connect"


class ConnectionLost(EarshotError):
    """An open connection was lost."""

    code = "connection_lost"


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """Session settings that the client asks for."""

    model: str = "default"
    language: str | None = None
    turn_detection: Literal["semantic_vad", "server_vad"] = "semantic_vad"
    voice: str | None = None
    transcription_model: str = TRANSCRIPTION_MODEL
    silence_ms: int | None = None
    "Silence for `server_vad`, in ms; None: the server's default."
    creates_response: bool = True
    "False: the server only transcribes."
    conversation_id: str = ""
    "Conversation of an Earshot server that goes on; empty: a new one."

    def query(self) -> dict[str, str]:
        """Returns the query that names the conversation."""
        return {"conversation_id": self.conversation_id} if self.conversation_id else {}

    def session(self) -> Json:
        """Returns the session object, with standard fields only, so that any server accepts it."""
        transcription = {"model": self.transcription_model}
        if self.language:
            transcription["language"] = self.language
        turns: Json = {"type": self.turn_detection}
        if self.silence_ms is not None:
            turns["silence_duration_ms"] = self.silence_ms
        if not self.creates_response:
            turns["create_response"] = False
        audio: Json = {"input": {"transcription": transcription, "turn_detection": turns}}
        if self.voice:
            audio["output"] = {"voice": self.voice}
        return {"type": "realtime", "audio": audio}


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One event of the server."""

    event: Mapping[str, Any]
    at: float
    "Time of its arrival, in the event loop's seconds."

    @property
    def type(self) -> str:
        return str(self.event.get("type", ""))


class EventInbox:
    """Queue of received events, with the reason for its end."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._received: asyncio.Queue[ReceivedEvent | None] = asyncio.Queue()
        self.end_reason = ""
        "Why the connection is over; empty while it is open."
        self.conversation_id = ""
        "Id of the conversation, as the server has told it; empty: it has not."
        self.quality: Mapping[str, Any] = {}
        "The server's latest report on the connection; `events` does not yield it."

    def put(self, event: Json) -> None:
        """Queues an event, or keeps it if it is a report on the connection."""
        if event.get("type") == "conversation.created":
            created = event.get("conversation")
            self.conversation_id = str(created.get("id", "")) if isinstance(created, dict) else ""
        if event.get("type") == QUALITY_EVENT and isinstance(event.get("connection"), Mapping):
            self.quality = event["connection"]
        elif self._received.qsize() >= MAX_UNREAD_EVENTS:
            self.close("the client does not read the server's events")
        elif not self.end_reason:
            self._received.put_nowait(ReceivedEvent(event, self._clock()))

    def close(self, why: str) -> None:
        """Ends the events with a reason; later calls do nothing."""
        if not self.end_reason:
            self.end_reason = why
            self._received.put_nowait(None)

    async def events(self) -> AsyncGenerator[ReceivedEvent, None]:
        """Yields events until the connection is over."""
        while (received := await self._received.get()) is not None:
            yield received
        self._received.put_nowait(None)  # ends the events of the next reader, too


EventSender = Callable[[Json], None]
"Function that queues an event for the server."


async def wait_for_session(inbox: EventInbox) -> None:
    """Waits for the server's first event. Raises CannotConnect."""
    await wait_for_event(inbox, "session.created", CONNECT_TIMEOUT_S)


async def request_settings(send: EventSender, inbox: EventInbox, request: SessionRequest) -> None:
    """Asks for the session's settings. Raises CannotConnect when the server refuses them."""
    send({"type": "session.update", "event_id": _SETTINGS_ID, "session": request.session()})
    await wait_for_event(inbox, "session.updated", UPDATE_TIMEOUT_S, event_id=_SETTINGS_ID)


async def include_earshot_events(send: EventSender, inbox: EventInbox) -> None:
    """Asks for the events that only Earshot sends. Other servers may refuse them."""
    session = {"type": "realtime", "include": list(EARSHOT_EVENTS)}
    send({"type": "session.update", "event_id": _EARSHOT_EVENTS_ID, "session": session})
    with suppress(CannotConnect):
        await wait_for_event(
            inbox, "session.updated", UPDATE_TIMEOUT_S, event_id=_EARSHOT_EVENTS_ID
        )


async def wait_for_event(
    inbox: EventInbox, kind: str, timeout_s: float, event_id: str | None = None
) -> None:
    """Waits for the next event of type `kind` and drops others.

    Raises CannotConnect if it does not come, or if an error event comes instead. With `event_id`,
    only errors that this event caused count.
    """
    try:
        async with asyncio.timeout(timeout_s), aclosing(inbox.events()) as events:
            async for received in events:
                if received.type == kind:
                    return
                if received.type == "error" and _is_about(received.event, event_id):
                    raise CannotConnect(f"the server refused: {error_message(received.event)}")
    except TimeoutError:
        raise CannotConnect(f"no {kind} came within {timeout_s:g} s") from None
    raise CannotConnect(f"the connection ended: {inbox.end_reason}")


def _is_about(event: Mapping[str, object], event_id: str | None) -> bool:
    error = event.get("error")
    return not event_id or not isinstance(error, Mapping) or error.get("event_id") == event_id


def decode_event(text: str | bytes) -> Json | None:
    """Decodes one event; returns None for malformed text."""
    try:
        event: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return event if isinstance(event, dict) else None


def error_message(event: Mapping[str, object]) -> str:
    """Returns the message of an error event, or of an HTTP error's JSON body, for people."""
    error = event.get("error")
    if not isinstance(error, Mapping):
        return str(error or "no reason given")
    code = f" ({error['code']})" if error.get("code") else ""
    return f"{error.get('message') or 'no message'}{code}"


@asynccontextmanager
async def background(*coroutines: Coroutine[Any, Any, Any]) -> AsyncGenerator[None, None]:
    """Runs coroutines as tasks while the body runs.

    Raises an EarshotError of the body as it is, not in an ExceptionGroup.
    """
    failure: EarshotError | None = None
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(coroutine) for coroutine in coroutines]
        try:
            yield
        except EarshotError as error:
            failure = error
        finally:
            for task in running:
                task.cancel()
    if failure is not None:
        raise failure
