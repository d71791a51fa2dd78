"""Protocols of what the door needs from other packages; `server/` connects the real objects."""

from collections.abc import AsyncIterable, Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from core.audio import AudioFrame
from core.events import SessionEvent
from pipeline.shared.settings import SessionSettings


class WhipSessionEvents(AsyncIterable[SessionEvent], Protocol):
    """Events of a session, until it ends. `overflowed`: it ended because the events were not
    read."""

    overflowed: bool


class WhipSessionPort(Protocol):
    """One session as the door uses it, see `pipeline.session.session.Session`. No method blocks."""

    @property
    def events(self) -> WhipSessionEvents: ...
    def feed(self, frame: AudioFrame) -> None: ...
    def pull(self) -> AudioFrame | None: ...
    def close(self) -> None: ...


class WhipSessionsPort(Protocol):
    """All sessions, see `pipeline.session.sessions.Sessions`. Raises OverloadedError or
    RequestError."""

    def open(
        self,
        settings: SessionSettings,
        *,
        paced_by: Literal["server", "client"],
        conversation_id: str | None = None,
        door: str = "realtime",
    ) -> AbstractAsyncContextManager[WhipSessionPort]: ...


class PublicationGuard(Protocol):
    """Runs one publication's work. A bug in it is logged and ends only that publication."""

    async def __call__(self, work: Awaitable[None], name: str) -> None: ...
