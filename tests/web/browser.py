"""A headless Chromium and a scripted server for the page."""

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from typing import Any, TypeVar

from aiohttp import web as aioweb
from playwright.sync_api import Browser, Playwright, expect, sync_playwright

from devices.registry.database import Database, open_database
from devices.registry.kept_conversations import KeptConversations
from pipeline.tools.home import Home, default_home
from pipeline.tools.skills import HomeControls, Timers
from server.http.kept_conversations import KeptConversationsDoor, kept_conversation_routes
from server.runtime.clock import SystemClock
from tests.conftest import require
from tests.web.reports import REPORT
from web.routes import PageDoor, routes

T = TypeVar("T")

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
"Names under which distributions install it."

SHELL = "chromium-headless-shell"
"""Chromium without windows and profiles: the same page takes two thirds of the processor time.
It forgets the names of microphones when a page is loaded again."""

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
)
ALLOWED = "--use-fake-ui-for-media-stream"
"The user allows the microphone."

EXPECT_MS = 20_000
"The default timeout of `expect`; its own 5 s are too few on a busy machine."


@contextmanager
def chromium(
    *flags: str, is_allowed: bool = True, prefers_shell: bool = False
) -> Iterator[Browser]:
    """Starts a browser, as `launched` does, and Playwright, which may run only once at a time."""
    with (
        sync_playwright() as playwright,
        launched(playwright, *flags, is_allowed=is_allowed, prefers_shell=prefers_shell) as browser,
    ):
        yield browser


@contextmanager
def launched(
    playwright: Playwright, *flags: str, is_allowed: bool = True, prefers_shell: bool = False
) -> Iterator[Browser]:
    """Starts a browser whose microphone is a file or a beep; skips the test without a browser."""
    names = (SHELL, *CHROMIUM) if prefers_shell else CHROMIUM
    path = next(filter(None, map(shutil.which, names)), None)
    require(path, "Chromium")
    expect.set_options(timeout=EXPECT_MS)
    args = [*FLAGS, *([ALLOWED] if is_allowed else []), *flags]
    browser = playwright.chromium.launch(executable_path=path, args=args)
    yield browser
    browser.close()


class Silent:
    """An announcer without anyone who listens."""

    async def announce(self, conversation_id: str, text: str) -> bool:
        return False


@dataclass
class Stub:
    """The APIs that the page uses. Calls are answered with `status`; there is never any media."""

    status: int = 201
    headers: dict[str, str] = field(default_factory=dict)
    key: str = ""
    "When set, everything but the page's files needs it."
    port: int = 0
    "To listen on; 0: any free one."
    prefix: str = ""
    "Path below which everything is, as behind some proxies."
    url: str = ""
    home: Home = field(default_factory=lambda: Home(default_home()))
    timers: Timers = field(init=False)
    is_stuck: bool = False
    "Calls are not answered at all."
    sessions: list[dict[str, Any]] = field(default_factory=list)
    "The session object of each call, in order."
    hung_up: Queue[str] = field(default_factory=Queue)
    "Ids of calls as their pages hang up."
    forgotten: Queue[str] = field(default_factory=Queue)
    "Ids of conversations that were deleted."
    kept_days: int = 0
    "Days for which the server keeps conversations."
    kept_database: Database | None = None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    def __post_init__(self) -> None:
        self.timers = Timers(self.home, SystemClock(), Silent())

    def soon(self, change: Callable[[], object]) -> None:
        """Runs `change` in the server's thread, which owns the home."""
        self.loop.call_soon_threadsafe(change)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` in the server's thread, which owns all of its state."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    async def call(self, request: aioweb.Request) -> aioweb.Response:
        if self.is_stuck:
            await asyncio.Event().wait()
        if self.status != 201:
            error = {"error": {"code": "server_full", "message": "the server is full"}}
            return aioweb.json_response(error, status=self.status, headers=self.headers)
        form = await request.post()
        session = form["session"]
        assert isinstance(session, aioweb.FileField)
        self.sessions.append(json.loads(session.file.read()))
        location = f"/v1/realtime/calls/rtc_{len(self.sessions)}"
        return aioweb.Response(status=201, text="v=0", headers={"Location": location})

    async def hang_up(self, request: aioweb.Request) -> aioweb.Response:
        self.hung_up.put(request.match_info["id"])
        return aioweb.Response()

    def door(self) -> PageDoor:
        return PageDoor(self.home, HomeControls(self.home, self.timers), lambda: REPORT)

    def app(self) -> aioweb.Application:
        @aioweb.middleware
        async def keyed(request: aioweb.Request, handler: Any) -> aioweb.StreamResponse:
            is_open = request.path == "/" or request.path.startswith("/static/")
            sent = request.headers.get("Authorization")
            if self.key and not is_open and sent != f"Bearer {self.key}":
                error = {"error": {"code": "invalid_api_key", "message": "a key is needed"}}
                return aioweb.json_response(error, status=401)
            answer: aioweb.StreamResponse = await handler(request)
            return answer

        app = aioweb.Application(middlewares=[keyed])
        assert self.kept_database is not None, "`serving` opens it"
        kept = KeptConversations(self.kept_database, SystemClock(), self.kept_days)
        kept_routes = kept_conversation_routes(KeptConversationsDoor(kept, self.forgotten.put))
        for route in (*routes(self.door()), *kept_routes):
            app.router.add_route(route.method, route.path, route.handler)
        app.router.add_post("/v1/realtime/calls", self.call)
        app.router.add_post("/v1/realtime/calls/{id}/hangup", self.hang_up)
        return app


@contextmanager
def serving(stub: Stub) -> Iterator[None]:
    """Runs `stub` on a free port of this machine, in a thread of its own."""
    ready = threading.Event()
    done = asyncio.Event()

    async def serve() -> None:
        async with open_database("sqlite://") as stub.kept_database:
            await serve_page()

    async def serve_page() -> None:
        # A page that left is noticed at the next heartbeat; 0 would wait for it for ever.
        app = stub.app()
        if stub.prefix:
            app = aioweb.Application()
            app.add_subapp(stub.prefix, stub.app())
        runner = aioweb.AppRunner(app, shutdown_timeout=0.01)
        await runner.setup()
        site = aioweb.TCPSite(runner, "127.0.0.1", stub.port)
        await site.start()
        stub.url = f"http://127.0.0.1:{runner.addresses[0][1]}{stub.prefix}"
        ready.set()
        await done.wait()
        await runner.cleanup()
        left = asyncio.all_tasks() - {asyncio.current_task()}  # streams that were just cut off
        for one in left:
            one.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    thread = threading.Thread(target=stub.loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield
    finally:
        stub.soon(done.set)
        thread.join()
        stub.loop.close()
