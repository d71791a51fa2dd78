"""Keeps a server alive: waits until it is well, watches it, starts it again with growing pauses.

It knows neither processes nor HTTP: `start` and `probe` are given.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from core.errors import EngineCrashed, EngineError, EngineTimeout

logger = logging.getLogger(__name__)

BACKOFF_S = (0.5, 2.0, 8.0, 30.0)
"Before the next starts after failures in a row: the first is short, a crash is often single."
MAX_FAILURES = 5
"In a row. A start costs half a minute of every core, and what failed five times fails again."
STABLE_AFTER_S = 120.0
"One that was well for so long starts the count anew."
START_PROBE_S = 0.25
WATCH_S = 5.0
"Between two looks at one that is up."
MISSES = 3
"Looks in a row that find it not well, until it counts as hung: a busy machine is slow to answer."

ServerState = Literal["stopped", "starting", "up", "restarting", "given up"]


class RunningServer(Protocol):
    """`process.ServerProcess`."""

    pid: int

    async def wait(self) -> str: ...


@dataclass(frozen=True, slots=True)
class SupervisedServer:
    """What is supervised."""

    name: str
    "Of the engine."
    start: Callable[[], AbstractAsyncContextManager[RunningServer]]
    probe: Callable[[], Awaitable[bool]]
    "Whether it is well; ends within seconds."
    last_words: Callable[[], str]
    start_timeout_s: float


class ServerSupervisor:
    """`running` keeps the server; `check` is for who is about to ask it something."""

    def __init__(self, server: SupervisedServer) -> None:
        self._server = server
        self._why = "it has not been started"
        self.state: ServerState = "stopped"
        self._changed = asyncio.Event()
        self.pid: int | None = None
        self.restarts = 0

    def check(self) -> None:
        """Raises EngineCrashed at once while the server is not up: nobody waits half a minute for
        an answer."""
        if self.state == "up":
            return
        doing = {"restarting": "it is being restarted", "given up": "it is not started again"}
        tail = f"; {doing[self.state]}" if self.state in doing else ""
        raise EngineCrashed(
            "llm", self._server.name, f"its server is not running: {self._why}{tail}"
        )

    async def changed(self) -> ServerState:
        """The next state."""
        await self._changed.wait()
        return self.state

    async def ready(self) -> None:
        """Wait until it is up. Raises EngineCrashed when it will not be."""
        while self.state in ("starting", "restarting"):
            await self.changed()
        self.check()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Up when the body begins, gone after it. Raises EngineError when it does not come up the
        first time: that is a matter of settings, which a restart does not mend."""
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed: EngineError | None = None
        async with asyncio.TaskGroup() as tasks:
            supervising = tasks.create_task(self._supervise(first), name="vllm")
            try:
                await first
                yield
            except EngineError as exc:
                failed = exc
            finally:
                supervising.cancel()
        if failed:  # out of the group, which would wrap it
            raise failed

    async def _supervise(self, first: asyncio.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        try:
            while True:
                if not first.done():
                    self._turn("starting", "it is starting")
                up_since_s, error = await self._live(first)
                if not first.done():
                    self._turn("given up", error.detail)
                    first.set_exception(error)
                    return
                self._turn("restarting", error.detail)
                was_stable = up_since_s is not None and loop.time() - up_since_s > STABLE_AFTER_S
                failures = 1 if was_stable else failures + 1
                logger.error("! llm.%s: %s", self._server.name, error.detail)
                if failures == MAX_FAILURES:
                    why = f"it failed {failures} times in a row, at last so: {error.detail}"
                    self._turn("given up", why)
                    logger.error("! llm.%s: not started again", self._server.name)
                    return
                await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S)) - 1])
                self.restarts += 1
        finally:
            if self.state != "given up":
                self._turn("stopped", "it was stopped")
            if not first.done():
                first.cancel()

    def _turn(self, state: ServerState, why: str = "") -> None:
        if state != self.state:
            self._changed.set()
            self._changed = asyncio.Event()
        self.state, self._why = state, why

    async def _live(self, first: asyncio.Future[None]) -> tuple[float | None, EngineError]:
        """One process from start to end: since when it was up, if ever, and what ended it."""
        name = self._server.name
        up_since_s: float | None = None
        try:
            async with self._server.start() as process:
                self.pid = process.pid
                end = await self._until_up(process)
                if end is None:
                    up_since_s = asyncio.get_running_loop().time()
                    self._turn("up")
                    if not first.done():
                        first.set_result(None)
                    logger.info("= llm.%s: up, pid %s", name, process.pid)
                    end = await self._until_down(process)
                    self._turn("restarting", end.why)  # already: ending what is left takes seconds
        except OSError as exc:
            return None, EngineCrashed("llm", name, str(exc))
        finally:
            self.pid = None
        # Only now has all been read that it said.
        why = f"{end.why}; its last words: {self._server.last_words()}"
        return up_since_s, end.kind("llm", name, why)

    async def _until_up(self, process: RunningServer) -> "_ServerExit | None":
        """None: it is. Otherwise why not."""
        try:
            async with asyncio.timeout(self._server.start_timeout_s):
                while True:
                    if (ended := await _within(START_PROBE_S, process)) is not None:
                        return _ServerExit(EngineCrashed, f"{ended} while it started")
                    if await self._server.probe():
                        return None
        except TimeoutError:
            why = f"it did not come up in {self._server.start_timeout_s:g} s"
            return _ServerExit(EngineTimeout, why)

    async def _until_down(self, process: RunningServer) -> "_ServerExit":
        misses = 0
        while misses < MISSES:
            if (ended := await _within(WATCH_S, process)) is not None:
                return _ServerExit(EngineCrashed, ended)
            misses = 0 if await self._server.probe() else misses + 1
        return _ServerExit(EngineTimeout, "it did not answer any more")


@dataclass(frozen=True, slots=True)
class _ServerExit:
    kind: type[EngineError]
    why: str


async def _within(timeout_s: float, process: RunningServer) -> str | None:
    """How it ended, if it does in that time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await process.wait()
    except TimeoutError:
        return None
