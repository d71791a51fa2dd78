"""What the door needs of the rest, as small Protocols; `server/` wires the real ones."""

from collections.abc import AsyncIterable, Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from core.audio import AudioFrame
from core.events import SessionEvent
from pipeline.shared.settings import SessionSettings


class WhipSessionEvents(AsyncIterable[SessionEvent], Protocol):
    """Ends with the session. `overflowed`: it ended because nobody took the events."""

    overflowed: bool


class WhipSessionPort(Protocol):
    """`pipeline.session.session.Session`. Nothing here blocks."""

    @property
    def events(self) -> WhipSessionEvents: ...
    def feed(self, frame: AudioFrame) -> None: ...
    def pull(self) -> AudioFrame | None: ...
    def close(self) -> None: ...


class WhipSessionsPort(Protocol):
    """`pipeline.session.sessions.Sessions`. Raises Overloaded, RequestError."""

    def open(
        self,
        settings: SessionSettings,
        *,
        paced_by: Literal["server", "client"],
        conversation_id: str | None = None,
        door: str = "realtime",
    ) -> AbstractAsyncContextManager[WhipSessionPort]: ...


class PublicationGuard(Protocol):
    """Runs one publication's work; a bug in it is logged and ends that one, not its neighbours."""

    async def __call__(self, work: Awaitable[None], name: str) -> None: ...
