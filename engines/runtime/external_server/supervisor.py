"""Keeps an external server alive: waits until it is up, watches it, and restarts it with growing
pauses.

It knows no HTTP, and does not start processes itself: `start` and `probe` are passed in.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from core.errors import EngineCrashed, EngineError, EngineTimeout
from core.tasks import Backoff
from engines.runtime.external_server.process import ServerProcess

logger = logging.getLogger(__name__)

BACKOFF_S = (0.5, 2.0, 8.0, 30.0)
"""Seconds before the next start after the first, second, ... failure in a row. The first is short
because a crash is often single."""
MAX_FAILURES = 5
"""Failures in a row after which the server is not started again. A start can cost half a minute of
every core, and a server that failed five times will fail again."""
STABLE_AFTER_S = 120.0
"A server that was up for this many seconds resets the count of failures."
START_PROBE_S = 0.25
"Seconds between two probes of a server that is starting."
WATCH_S = 5.0
"Seconds between two probes of a server that is up."
MAX_MISSED_PROBES = 3
"""Failed probes in a row after which a server counts as hung. One is not enough: a busy machine
answers slowly."""

ServerState = Literal["stopped", "starting", "up", "restarting", "given up"]
'State of a server. "given up" means that it is not started again.'


@dataclass(frozen=True, slots=True)
class SupervisedServer:
    """Description of the server to supervise."""

    kind: str
    "Kind of the engine, such as llm. It is named in errors and in the log."
    name: str
    "Name of the engine."
    start: Callable[[], AbstractAsyncContextManager[ServerProcess]]
    "Starts the server, and ends it when the context is left."
    probe: Callable[[], Awaitable[bool]]
    "Returns True if the server is healthy. It must end within seconds."
    last_output: Callable[[], str]
    "Returns the last lines that the server printed, for an error message."
    start_timeout_s: float
    "Longest time from the start until the server is up."


class ServerSupervisor:
    """Supervises one external server. `running` keeps it alive; call `check` before each request to
    it. `ServerProgram.supervisor` makes one for a program."""

    def __init__(self, server: SupervisedServer) -> None:
        self._server = server
        self._label = f"{server.kind}.{server.name}"
        self._state_reason = "it has not been started"
        self.state: ServerState = "stopped"
        self._changed = asyncio.Event()
        self.pid: int | None = None
        self.restarts = 0

    def check(self) -> None:
        """Raises EngineCrashed at once if the server is not up, so that no caller waits half a
        minute for its start."""
        if self.state == "up":
            return
        next_step = {"restarting": "it is being restarted", "given up": "it is not started again"}
        tail = f"; {next_step[self.state]}" if self.state in next_step else ""
        why = f"its server is not running: {self._state_reason}{tail}"
        raise EngineCrashed(self._server.kind, self._server.name, why)

    async def wait_for_change(self) -> ServerState:
        """Waits until the state changes, and returns the new state."""
        await self._changed.wait()
        return self.state

    async def wait_until_ready(self) -> None:
        """Waits until the server is up. Raises EngineCrashed if it is stopped or given up."""
        while self.state in ("starting", "restarting"):
            await self.wait_for_change()
        self.check()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Starts the server before the body, and ends it afterwards. Raises EngineError if the
        first start fails: then usually the settings are wrong, and a restart does not help."""
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed: EngineError | None = None
        async with asyncio.TaskGroup() as tasks:
            supervisor = tasks.create_task(self._supervise(first), name=self._label)
            try:
                await first
                yield
            except EngineError as exc:
                failed = exc
            finally:
                supervisor.cancel()
        if failed:  # raised outside the task group, which would wrap it in an ExceptionGroup
            raise failed

    async def _supervise(self, first: asyncio.Future[None]) -> None:
        """Runs the server again and again. `first`: gets the result of the first start."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(BACKOFF_S, STABLE_AFTER_S)
        try:
            while True:
                if not first.done():
                    self._set_state("starting", "it is starting")
                up_since_s, error = await self._run_once(first)
                if not first.done():
                    self._set_state("given up", error.detail)
                    first.set_exception(error)
                    return
                self._set_state("restarting", error.detail)
                wait_s = backoff.fail(0.0 if up_since_s is None else loop.time() - up_since_s)
                logger.error("! %s: %s", self._label, error.detail)
                if backoff.failures == MAX_FAILURES:
                    why = f"it failed {MAX_FAILURES} times in a row; the last time: {error.detail}"
                    self._set_state("given up", why)
                    logger.error("! %s: will not be restarted", self._label)
                    return
                await asyncio.sleep(wait_s)
                self.restarts += 1
        finally:
            if self.state != "given up":
                self._set_state("stopped", "it was stopped")
            if not first.done():
                first.cancel()

    def _set_state(self, state: ServerState, why: str = "") -> None:
        if state != self.state:
            self._changed.set()
            self._changed = asyncio.Event()
        self.state, self._state_reason = state, why

    async def _run_once(self, first: asyncio.Future[None]) -> tuple[float | None, EngineError]:
        """Runs one process from start to end. Returns the loop time since which it was up (None:
        never) and the error that ended it."""
        kind, name = self._server.kind, self._server.name
        up_since_s: float | None = None
        try:
            async with self._server.start() as process:
                self.pid = process.pid
                end = await self._until_up(process)
                if end is None:
                    up_since_s = asyncio.get_running_loop().time()
                    self._set_state("up")
                    if not first.done():
                        first.set_result(None)
                    logger.info("= %s: ready, pid %s", self._label, process.pid)
                    end = await self._until_down(process)
                    # Set now, because ending the process takes seconds.
                    self._set_state("restarting", end.why)
        except OSError as exc:
            return None, EngineCrashed(kind, name, str(exc))
        finally:
            self.pid = None
        # Only after the `async with` has all output of the server been read.
        why = f"{end.why}; its last output: {self._server.last_output()}"
        return up_since_s, end.error(kind, name, why)

    async def _until_up(self, process: ServerProcess) -> "_ServerExit | None":
        """Waits until the server is up and returns None, or returns why it is not."""
        try:
            async with asyncio.timeout(self._server.start_timeout_s):
                while True:
                    if (ended := await _wait_for_exit(START_PROBE_S, process)) is not None:
                        return _ServerExit(EngineCrashed, f"{ended} while it started")
                    if await self._server.probe():
                        return None
        except TimeoutError:
            why = f"it did not come up in {self._server.start_timeout_s:g} s"
            return _ServerExit(EngineTimeout, why)

    async def _until_down(self, process: ServerProcess) -> "_ServerExit":
        """Waits until the server has ended or does not answer any more."""
        misses = 0
        while misses < MAX_MISSED_PROBES:
            if (ended := await _wait_for_exit(WATCH_S, process)) is not None:
                return _ServerExit(EngineCrashed, ended)
            misses = 0 if await self._server.probe() else misses + 1
        return _ServerExit(EngineTimeout, "it did not answer any more")


@dataclass(frozen=True, slots=True)
class _ServerExit:
    """Reason why a server is not up or no longer up, and the error class for it."""

    error: type[EngineError]
    why: str


async def _wait_for_exit(timeout_s: float, process: ServerProcess) -> str | None:
    """Waits at most `timeout_s` for the end of the process. Returns how it ended; None if it still
    runs."""
    try:
        async with asyncio.timeout(timeout_s):
            return await process.wait()
    except TimeoutError:
        return None
