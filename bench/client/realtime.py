"""What every Realtime client of ours shares, whatever carries its texts."""

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
ClientTransport = Literal["webrtc", "ws"]
OnSound = Callable[[AudioFrame, float], None]
"Takes received sound and when it arrived, in the loop's seconds."

CONNECT_TIMEOUT_S = 15
"For TCP, TLS, the call and the first event; ICE alone may take some seconds on a bad network."

SETTLE_TIMEOUT_S = 3
"For the answer to `session.update`, which needs no work of a model."

MAX_UNREAD_EVENTS = 4096
"Nobody reads for so long only when this process hangs."

OUR_EVENTS = ("earshot.hypothesis", "earshot.turn", QUALITY_EVENT)

TRANSCRIPTION_MODEL = "whisper-1"
"A name that every Realtime server knows; ours takes the hosted service's names for its default."

_OURS = "earshot-events"
_WISH = "wish"
"Ids of the two session.update that we send; an error names the one it is about."


class CannotConnect(EarshotError):
    """The server cannot be reached, or refused us."""

    code = "cannot_connect"


class ConnectionLost(EarshotError):
    """It was there, and went away."""

    code = "connection_lost"


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What we ask of the session."""

    model: str = "default"
    language: str | None = None
    turn_detection: Literal["semantic_vad", "server_vad"] = "semantic_vad"
    voice: str | None = None
    recogniser: str = TRANSCRIPTION_MODEL
    silence_ms: int | None = None
    "What `server_vad` waits for; None: the server's default."
    is_answered: bool = True
    "False: nobody is to say anything, the transcript is all that is wanted."

    def session(self) -> Json:
        """The session object: standard fields only, so that any server takes it."""
        transcription = {"model": self.recogniser}
        if self.language:
            transcription["language"] = self.language
        turns: Json = {"type": self.turn_detection}
        if self.silence_ms is not None:
            turns["silence_duration_ms"] = self.silence_ms
        if not self.is_answered:
            turns["create_response"] = False
        audio: Json = {"input": {"transcription": transcription, "turn_detection": turns}}
        if self.voice:
            audio["output"] = {"voice": self.voice}
        return {"type": "realtime", "audio": audio}


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One server event."""

    event: Mapping[str, Any]
    at: float
    "When it arrived, in the loop's seconds."

    @property
    def type(self) -> str:
        return str(self.event.get("type", ""))


class EventInbox:
    """Events as they arrive, and why none will come any more."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._received: asyncio.Queue[ReceivedEvent | None] = asyncio.Queue()
        self.end = ""
        "Why the connection is over; empty while it lives."
        self.quality: Mapping[str, Any] = {}
        "What the server told last of the connection; no part of the conversation."

    def put(self, event: Json) -> None:
        if event.get("type") == QUALITY_EVENT and isinstance(event.get("connection"), Mapping):
            self.quality = event["connection"]
        elif self._received.qsize() >= MAX_UNREAD_EVENTS:
            self.close("we do not read what the server sends")
        elif not self.end:
            self._received.put_nowait(ReceivedEvent(event, self._clock()))

    def close(self, why: str) -> None:
        if not self.end:
            self.end = why
            self._received.put_nowait(None)

    async def events(self) -> AsyncGenerator[ReceivedEvent, None]:
        """Until the connection is over."""
        while (received := await self._received.get()) is not None:
            yield received
        self._received.put_nowait(None)  # also for whoever reads next


EventSender = Callable[[Json], None]


async def greeted(inbox: EventInbox) -> None:
    """Wait for the server's first event. Raises CannotConnect."""
    await _awaited(inbox, "session.created", CONNECT_TIMEOUT_S)


async def wished(send: EventSender, inbox: EventInbox, wish: SessionRequest) -> None:
    """Ask for the session we want. Raises CannotConnect when the server refuses it."""
    send({"type": "session.update", "event_id": _WISH, "session": wish.session()})
    await _awaited(inbox, "session.updated", SETTLE_TIMEOUT_S, event_id=_WISH)


async def extended(send: EventSender, inbox: EventInbox) -> None:
    """Ask for the events that only our server has; any other may refuse them."""
    session = {"type": "realtime", "include": list(OUR_EVENTS)}
    send({"type": "session.update", "event_id": _OURS, "session": session})
    with suppress(CannotConnect):
        await _awaited(inbox, "session.updated", SETTLE_TIMEOUT_S, event_id=_OURS)


async def _awaited(
    inbox: EventInbox, kind: str, timeout_s: float, event_id: str | None = None
) -> None:
    """The next event of this type; others before it are dropped.

    Raises CannotConnect: it did not come, or an error came instead (about `event_id`, if given).
    """
    try:
        async with asyncio.timeout(timeout_s), aclosing(inbox.events()) as events:
            async for received in events:
                if received.type == kind:
                    return
                if received.type == "error" and _is_about(received.event, event_id):
                    raise CannotConnect(f"the server refused: {message_of(received.event)}")
    except TimeoutError:
        raise CannotConnect(f"no {kind} came within {timeout_s:g} s") from None
    raise CannotConnect(f"the connection ended: {inbox.end}")


def _is_about(event: Mapping[str, Any], event_id: str | None) -> bool:
    error = event.get("error")
    return not event_id or not isinstance(error, Mapping) or error.get("event_id") == event_id


def decoded(text: str | bytes) -> Json | None:
    """One event; None for what is none."""
    try:
        event: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return event if isinstance(event, dict) else None


def message_of(event: Mapping[str, Any]) -> str:
    """What an error event or an error's JSON body says, for people."""
    error = event.get("error")
    if not isinstance(error, Mapping):
        return str(error or "no reason given")
    code = f" ({error['code']})" if error.get("code") else ""
    return f"{error.get('message') or 'no message'}{code}"


@asynccontextmanager
async def background(*work: Coroutine[Any, Any, Any]) -> AsyncGenerator[None, None]:
    """Run these while the body runs. Our own errors of the body come out as they are."""
    failure: EarshotError | None = None
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one) for one in work]
        try:
            yield
        except EarshotError as error:
            failure = error
        finally:
            for task in running:
                task.cancel()
    if failure is not None:
        raise failure
