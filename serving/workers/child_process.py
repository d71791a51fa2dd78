"""A worker program in a supervised child process: started, watched, killed when hung, restarted.

Both ends speak `engines.runtime.worker.protocol` over a socket pair. Losing the child loses what
it had in hand, never the server.
"""

import asyncio
import logging
import socket
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Generic, TypeVar

from msgspec import Struct

from core.errors import (
    EngineCrashed,
    EngineError,
    EngineTimeout,
    RemoteProtocolError,
)
from core.ports import Metrics
from engines.runtime.worker.protocol import (
    LoadRequest,
    MessageFrameReader,
    PingRequest,
    frame,
    worker_command,
)

logger = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 120.0
"A large Whisper from a cold disk takes tens of seconds."
BACKOFF_S = (0.05, 0.2, 1.0, 5.0)
"Waits before the next starts after failures in a row: the first is short, a crash is often single."
STABLE_AFTER_S = 30.0
"A worker that lived this long starts the backoff anew."
EXIT_GRACE_S = 1.0
"A child told to end by closing its socket exits at once; one that does not is killed."
SILENCE_S = 15.0
"With nothing to do, before it is asked whether it lives, and from then until it is killed."
READ_BYTES = 256 * 1024

InfoT = TypeVar("InfoT")
ReplyT = TypeVar("ReplyT")


class ChildProcessWorker(ABC, Generic[InfoT, ReplyT]):
    """Supervises one child process; a subclass says what the child is asked and what it answers.

    `InfoT` is what the child says of itself once it has loaded, `ReplyT` its messages.
    """

    def __init__(self, load: LoadRequest, metrics: Metrics, *, name: str, label: str) -> None:
        """`load`: the first message. `name`: for errors. `label`: for the log."""
        self._load, self._metrics = load, metrics
        self._kind, self._name, self._label = load.kind, name, label
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ready: asyncio.Future[InfoT] | None = None
        self._has_loaded = False
        self._is_loading = False

    @property
    def pid(self) -> int | None:
        """Of the living child."""
        return self._process.pid if self._process else None

    @property
    def is_ready(self) -> bool:
        """A child lives and has loaded."""
        return self.pid is not None and self._ready is not None and self._ready.done()

    async def ready(self) -> InfoT:
        """Wait until it has loaded. Raises EngineMissing and its like when it cannot; EngineCrashed
        when it was lost, and could not be loaded again just now."""
        return await asyncio.shield(self._ready_future())

    async def run(self) -> None:
        """Keep the child alive until cancelled. Raises when the very first load fails."""
        failures = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                started = loop.time()
                try:
                    await self._live()
                except (EngineError, RemoteProtocolError, OSError) as exc:
                    if not self._has_loaded:
                        self._fail_ready(exc)
                        raise
                    logger.error("! %s: %s", self._label, exc)
                    if self._is_loading:
                        self._fail_reload(exc)
                failures = 1 if loop.time() - started > STABLE_AFTER_S else failures + 1
                self._metrics.count("earshot_worker_restarts", kind=self._kind)
                await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S)) - 1])
        finally:
            self._lose("the server is stopping")

    @abstractmethod
    def _reader(self) -> MessageFrameReader[ReplyT]:
        """For what the child says."""

    @abstractmethod
    def _receive(self, reply: ReplyT) -> None:
        """Takes a message of the child; calls `_loaded` for the one that says it is ready.

        Raises EngineError to have the child replaced.
        """

    @abstractmethod
    def _lose_work(self, why: str) -> None:
        """Fails what the child has in hand."""

    def _is_busy(self) -> bool:
        """Whether the child may be silent because it works; what it works on has its own limit."""
        return False

    async def _start(self, theirs: socket.socket) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *worker_command(sys.executable, theirs.fileno()),
            pass_fds=(theirs.fileno(),),
            stdin=asyncio.subprocess.DEVNULL,
        )

    def _loaded(self, info: InfoT) -> None:
        self._has_loaded, self._is_loading = True, False
        if not self._ready_future().done():
            self._ready_future().set_result(info)

    async def _back(self) -> None:
        """Wait for a child that is being restarted, but not for ever."""
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                await self.ready()
        except TimeoutError:
            why = f"its worker process did not come back in {LOAD_TIMEOUT_S:.0f} s"
            raise EngineCrashed(self._kind, self._name, why) from None

    async def _live(self) -> None:
        """One child, from start to death. Raises when it is gone."""
        self._is_loading = True
        ours, theirs = socket.socketpair()
        with theirs:
            process = self._process = await self._start(theirs)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S) as deadline:
                await self._send(self._load)
                replies = self._reader()
                while data := await self._next(reader):
                    for reply in replies.receive_data(data):
                        self._receive(reply)
                    if not self._is_loading:
                        deadline.reschedule(None)
        except TimeoutError:
            raise EngineTimeout(self._kind, self._name, "did not load in time") from None
        except ConnectionError:
            pass  # it died with something of ours unread
        finally:
            self._lose("its worker process died")
            self._writer.close()
            self._writer = None
            await self._reap(process)
            self._process = None
        doing = "while it loaded" if self._is_loading else "in service"
        why = f"its worker process died {doing} (exit status {process.returncode})"
        raise EngineCrashed(self._kind, self._name, why)

    async def _next(self, reader: asyncio.StreamReader) -> bytes:
        """What the child says. One that is silent with nothing to do is asked whether it lives:
        else the next speaker would find out. Raises EngineTimeout."""
        is_asked = False
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    return await reader.read(READ_BYTES)
            except TimeoutError:
                if self._is_loading or self._is_busy():
                    continue  # these have limits of their own
                if is_asked:
                    self._kill()
                    raise EngineTimeout(self._kind, self._name, "hung with nothing to do") from None
                is_asked = True
                self._tell(PingRequest(0))

    async def _send(self, message: Struct) -> None:
        if self._writer is None:
            raise EngineCrashed(self._kind, self._name, "its worker process died")
        try:
            self._writer.write(frame(message))
        except RemoteProtocolError as exc:
            raise EngineError(self._kind, self._name, str(exc)) from exc
        with suppress(ConnectionError):  # the reading side sees the same death and says so
            await self._writer.drain()

    def _tell(self, message: Struct) -> None:
        """Small, and not waited for."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(message))

    def _ready_future(self) -> asyncio.Future[InfoT]:
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
        return self._ready

    def _fail_ready(self, exc: Exception) -> None:
        ready = self._ready_future()
        if not ready.done():
            ready.set_exception(exc)
            ready.exception()  # run() raises it too, so it counts as seen

    def _fail_reload(self, exc: Exception) -> None:
        """Who waits hears why; who comes later waits for the next child."""
        why = exc.detail if isinstance(exc, EngineError) else str(exc)
        self._fail_ready(
            EngineCrashed(self._kind, self._name, f"crashed, and does not load again: {why}")
        )
        self._ready = None

    def _lose(self, why: str) -> None:
        """Fail what is in flight; later callers wait for the next child."""
        self._lose_work(why)
        if self._ready is not None and self._ready.done():
            self._ready = None

    def _kill(self) -> None:
        self._lose("its worker process hung")  # at once: nobody may send to what is dying
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(EXIT_GRACE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.kill()
            raise
