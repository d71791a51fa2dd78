"""Small Protocols of what the door needs from other packages; `server/` passes the
implementations."""

import asyncio
from collections.abc import AsyncIterable
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from core.audio import AudioFrame
from core.events import SessionEvent
from core.items import Item
from core.ports import DeviceLocation
from pipeline.shared.settings import ResponseRequest, SessionSettings


class XiaozhiSessionEvents(AsyncIterable[SessionEvent], Protocol):
    """Events of a session; they end with it. overflowed: it ended because the events were not
    read."""

    overflowed: bool


class XiaozhiSessionPort(Protocol):
    """`pipeline.session.session.Session`, paced by the server. No method blocks."""

    @property
    def id(self) -> str: ...
    @property
    def events(self) -> XiaozhiSessionEvents: ...
    def feed(self, frame: AudioFrame) -> None: ...
    def configure(self, settings: SessionSettings) -> None: ...
    def commit_input(self) -> None: ...
    def clear_input(self) -> None: ...
    def add_item(self, item: Item) -> None: ...
    def create_response(self, request: ResponseRequest) -> None: ...
    def cancel_response(self, response_id: str | None = None) -> None: ...
    def clear_output(self) -> None: ...
    def pull(self) -> AudioFrame | None: ...
    @property
    def coming(self) -> asyncio.Event | None:
        """Event that is set when there is audio to pull; None: no answer is on its way, or it is
        being played."""
        ...

    @property
    def is_answering(self) -> bool: ...
    @property
    def next_clause(self) -> tuple[str, int, str] | None:
        """Response id, number and text of the clause that `pull` gives next; None: no audio, or
        none with a text."""
        ...

    def say(self, text: str) -> bool: ...
    def close(self) -> None: ...


class XiaozhiSessionsPort(Protocol):
    """`pipeline.session.sessions.Sessions`. Raises OverloadedError, RequestError."""

    def open(
        self,
        settings: SessionSettings,
        *,
        paced_by: Literal["server", "client"],
        conversation_id: str | None = None,
        place: DeviceLocation | None = None,
        door: str = "realtime",
    ) -> AbstractAsyncContextManager[XiaozhiSessionPort]: ...
