"""Protocols of what the door needs from other packages; `server/` connects the real objects."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

from core.audio import AudioFrame
from core.events import SessionEvent
from core.items import Item
from engines.base import AsrPadding
from pipeline.session.items import Recordings
from pipeline.session.sessions import ClientSecretHolder
from pipeline.shared.settings import ResponseRequest, SessionSettings


class RealtimeSessionEvents(AsyncIterable[SessionEvent], Protocol):
    """Events of a session, until it ends. `overflowed`: it ended because the events were not
    read."""

    overflowed: bool

    async def room(self, below: int) -> None:
        """Waits until fewer than `below` events are unread, or the session ends."""
        ...


class RealtimeSessionPort(Protocol):
    """One session as the door uses it, see `pipeline.session.session.Session`. No method blocks."""

    @property
    def id(self) -> str: ...
    @property
    def conversation_id(self) -> str: ...
    @property
    def events(self) -> RealtimeSessionEvents: ...
    def feed(self, frame: AudioFrame) -> None: ...
    def configure(self, settings: SessionSettings) -> None: ...
    @property
    def padding_instead(self) -> AsrPadding | None:
        """Padding that the recogniser uses instead of the configured one; None if it uses that
        one."""
        ...

    def commit_input(self) -> None: ...
    def clear_input(self) -> None: ...
    def add_item(self, item: Item, previous_item_id: str | None, said: Recordings, /) -> None: ...
    def delete_item(self, item_id: str) -> None: ...
    def retrieve_item(self, item_id: str) -> None: ...
    def create_response(self, request: ResponseRequest) -> None: ...
    def cancel_response(self, response_id: str | None = None) -> None: ...
    def clear_output(self) -> None: ...
    def truncate(self, item_id: str, audio_end_ms: int) -> None: ...
    def pull(self) -> AudioFrame | None: ...
    @property
    def coming(self) -> asyncio.Event | None: ...
    def close(self) -> None: ...


class RealtimeSessionsPort(Protocol):
    """All sessions, see `pipeline.session.sessions.Sessions`. Raises OverloadedError or
    RequestError."""

    def remembered(self, fresh: SessionSettings, conversation_id: str | None) -> SessionSettings:
        """Returns the settings with which a connection to this conversation begins."""
        ...

    def open(
        self,
        settings: SessionSettings,
        *,
        paced_by: Literal["server", "client"],
        conversation_id: str | None = None,
        door: str = "realtime",
        guest: ClientSecretHolder | None = None,
    ) -> AbstractAsyncContextManager[RealtimeSessionPort]: ...


class RealtimeHomeSource(Protocol):
    """Home whose state clients can watch, see `pipeline.tools.home.home.DemoHome`."""

    def watch(self, language: str | None = None) -> AsyncGenerator[Any, None]:
        """Yields the home's state now and after each change; a slow reader skips to the latest
        state."""
        ...


class CallGuard(Protocol):
    """Runs one call's work. A bug in it is logged and ends only that call."""

    async def __call__(self, work: Awaitable[None], name: str) -> None: ...
