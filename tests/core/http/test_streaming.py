"""Server-sent events: heartbeats, slow pages, and the limit of subscribers."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from core.errors import OverloadedError, RequestError
from core.http import streaming
from core.http.streaming import HEARTBEAT, EventStreamSubscribers


class Page:
    """A response that accepts data while `reads` is set."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.reads, self.came = asyncio.Event(), asyncio.Event()
        self.reads.set()
        self.is_gone = False

    async def prepare(self, request: Any) -> None:
        pass

    async def write(self, data: bytes) -> None:
        if self.is_gone:
            raise ConnectionResetError
        self.got.append(data)
        self.came.set()
        await self.reads.wait()

    async def until(self, count: int) -> None:
        while len(self.got) < count:
            self.came.clear()
            await self.came.wait()


class Counter:
    """A source of events that yields its number after each change; `asked` counts the yields."""

    def __init__(self) -> None:
        self.number, self.asked, self.is_closed = 1, 0, False
        self.changed = asyncio.Event()

    def change(self) -> None:
        self.number += 1
        self.changed.set()

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                self.asked += 1
                yield b"%d" % self.number
                await self.changed.wait()
                self.changed.clear()
        finally:
            self.is_closed = True


async def _left(task: asyncio.Task[Page]) -> None:
    task.cancel()
    await asyncio.wait([task])


def test_a_slow_page_gets_only_the_latest_state() -> None:
    async def main() -> None:
        counter, page = Counter(), Page()
        page.reads.clear()
        async with asyncio.timeout(30):
            task = asyncio.create_task(
                EventStreamSubscribers("it", 1).show(None, page, counter.events())
            )
            await page.until(1)
            for _ in range(1000):
                counter.change()
                await asyncio.sleep(0)
            assert counter.asked == 1
            page.reads.set()
            await page.until(2)
            assert page.got == [b"1", b"1001"]
            await _left(task)
        assert counter.is_closed

    asyncio.run(main())


def test_a_page_that_reads_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "STALL_S", 0.01)

    async def main() -> None:
        watchers, counter, page = EventStreamSubscribers("it", 1), Counter(), Page()
        page.reads.clear()
        with pytest.raises(ExceptionGroup) as caught:
            await watchers.show(None, page, counter.events())
        assert caught.group_contains(RequestError, match="the client accepted no data")
        assert counter.is_closed
        page.is_gone = True
        await watchers.show(None, page, Counter().events())  # there is room again

    asyncio.run(main())


def test_heartbeats_during_silence_reveal_a_closed_page() -> None:
    async def main() -> None:
        counter, page = Counter(), Page()
        async with asyncio.timeout(30):
            task = asyncio.create_task(
                EventStreamSubscribers("it", 1, 0.001).show(None, page, counter.events())
            )
            await page.until(3)
            assert page.got[1:3] == [HEARTBEAT, HEARTBEAT]
            page.is_gone = True
            assert await task is page
        assert counter.is_closed

    asyncio.run(main())


def test_subscribers_beyond_the_limit_are_refused() -> None:
    async def main() -> None:
        watchers, page = EventStreamSubscribers("the home", 1), Page()
        task = asyncio.create_task(watchers.show(None, page, Counter().events()))
        await page.until(1)
        with pytest.raises(OverloadedError, match="1 clients already watch the home") as refused:
            await watchers.show(None, Page(), Counter().events())
        assert refused.value.code == "too_many_watchers"
        await _left(task)

    asyncio.run(main())


def test_an_error_before_the_first_event_sends_nothing() -> None:
    async def failing() -> AsyncGenerator[bytes, None]:
        for error in (ConnectionRefusedError("the database"),):
            raise error
        yield b""

    async def main() -> None:
        page = Page()
        with pytest.raises(ConnectionRefusedError):
            await EventStreamSubscribers("it", 1).show(None, page, failing())
        assert page.got == []

    asyncio.run(main())
