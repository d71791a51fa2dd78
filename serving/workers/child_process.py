"""Supervision of a worker program in a child process: starts it, watches it, kills it when it
hangs, restarts it.

Both ends speak `engines.runtime.worker.protocol` over a socket pair. If the child dies, its current
requests are lost, but the server is not affected.
"""

import asyncio
import logging
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from core.errors import (
    ConfigError,
    EngineCrashed,
    EngineError,
    EngineRefused,
    EngineTimeout,
    RemoteProtocolError,
)
from core.ports import Metrics
from core.tasks import Backoff, single_error
from engines.runtime.worker.protocol import (
    LoadRequest,
    MessageFrameReader,
    PingRequest,
    frame,
    worker_command,
)

logger = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 120.0
"Longest time for loading the model. A large Whisper from a cold disk takes tens of seconds."
BACKOFF_S = (0.05, 0.2, 1.0, 5.0)
"""Seconds before the next start after the first, second, ... failure in a row. The first is short
because a crash is often single."""
STABLE_AFTER_S = 30.0
"A worker that lived this many seconds resets the count of failures."
EXIT_GRACE_S = 1.0
"""Time for a child to exit after its socket was closed. A healthy one exits at once; after this
time it is killed."""
SILENCE_S = 15.0
"""Time of silence after which an idle child gets a ping. After the same time without an answer it
is killed."""
READ_BYTES = 256 * 1024
"Largest piece of data that is read at once."

REFUSED_STATUS = 255
"""Exit status of a library in C++ that ends its process because a model's files are not what it
expects, as sherpa-onnx does. No signal and no error of Python has it."""

CHILD_ERRORS = (EngineError, ConfigError, RemoteProtocolError, OSError)
"Errors that end a child, or that say why it does not start."

InfoT = TypeVar("InfoT")
"Type of what the child reports about itself once it has loaded."
ReplyT = TypeVar("ReplyT")
"Type of the child's messages."


class WorkerEnd(Protocol):
    """The process at the other end of a worker's connection; asyncio's `Process` is one."""

    @property
    def pid(self) -> int | None:
        """Its process id; None if it is not a child of this process."""
        ...

    @property
    def returncode(self) -> int | None:
        """Its exit status; None if it runs, or if it is not a child of this process."""
        ...

    def kill(self) -> None:
        """Kills the process, or gives up the connection to one that is not a child."""
        ...

    async def wait(self) -> object:
        """Waits for its end."""
        ...


class ChildProcessWorker(ABC, Generic[InfoT, ReplyT]):
    """Supervises one child process. A subclass defines the requests to the child and the replies.

    `InfoT` is what the child reports about itself once it has loaded, `ReplyT` its messages.
    """

    _died = "its worker process died"
    "Start of errors for calls that were lost with the process."

    def __init__(
        self,
        load: LoadRequest,
        metrics: Metrics,
        *,
        name: str,
        label: str,
        load_timeout_s: float | None = None,
    ) -> None:
        """Prepares the worker; `run` starts it. `load`: the first message to the child. `name`: the
        name in errors. `label`: the name in the log. `load_timeout_s`: longest time for loading;
        None means LOAD_TIMEOUT_S."""
        self._load, self._metrics = load, metrics
        self._load_timeout_s = LOAD_TIMEOUT_S if load_timeout_s is None else load_timeout_s
        self._kind, self._name, self._label = load.kind, name, label
        self._process: WorkerEnd | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ready: asyncio.Future[InfoT] | None = None
        "Report of the present child, or the error of its load. Each child gets a new future."
        self._has_loaded = False
        """True once any child has loaded. Before that, a failure ends `run`; after it, the child is
        restarted."""
        self._is_loading = False
        "True from the start of a child until it reports that it is ready."

    @property
    def pid(self) -> int | None:
        """Process id of the running child; None if there is none."""
        return self._process.pid if self._process else None

    @property
    def is_ready(self) -> bool:
        """True if a child is running and has loaded."""
        is_running = self._process is not None
        return is_running and self._ready is not None and self._ready.done()

    async def ready(self) -> InfoT:
        """Waits until the child has loaded, and returns its report.

        Raises EngineMissing, ConfigError and similar errors when the first load failed;
        EngineCrashed when the child was lost and could not be loaded again just now.
        """
        return await asyncio.shield(self._ready_future())

    async def run(self) -> None:
        """Keeps the child alive until it is cancelled. Raises EngineError or ConfigError when the
        very first load fails, EngineRefused also when a later one is refused."""
        backoff = Backoff(BACKOFF_S, STABLE_AFTER_S)
        loop = asyncio.get_running_loop()
        failure: Exception | None = None
        try:
            while True:
                started = loop.time()
                try:
                    await self._run_child()
                except CHILD_ERRORS as exc:
                    # The same files would be refused again, so another child is of no use.
                    if not self._has_loaded or isinstance(exc, EngineRefused):
                        failure = exc
                        self._fail_ready(exc)
                        raise
                    logger.error("! %s: %s", self._label, exc)
                    if self._is_loading:
                        self._fail_reload(exc)
                wait_s = backoff.fail(loop.time() - started)
                self._metrics.count("earshot_worker_restarts", kind=self._kind)
                await asyncio.sleep(wait_s)
        finally:
            self._abandon_requests("the server is stopping")
            if failure is not None:
                self._fail_ready(failure)  # for later callers, as no other child is started

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keeps the child alive while the context is open. `ready` reports a first load that
        fails."""
        with single_error():
            async with asyncio.TaskGroup() as tasks:
                task = tasks.create_task(self._run_quietly(), name=self._label)
                yield
                task.cancel()

    async def _run_quietly(self) -> None:
        """Runs the child without raising the error of its first load, which `ready` reports."""
        with suppress(*CHILD_ERRORS):
            await self.run()

    @abstractmethod
    def _reader(self) -> MessageFrameReader[ReplyT]:
        """Returns a reader for the child's messages."""

    @abstractmethod
    def _receive(self, reply: ReplyT) -> None:
        """Handles a message of the child, and calls `_set_loaded` for the one that reports it
        ready.

        Raises EngineError to have the child replaced.
        """

    @abstractmethod
    def _fail_requests(self, why: str) -> None:
        """Fails all requests that the child has not answered."""

    def _is_busy(self) -> bool:
        """True if the child may be silent because it works. Its requests have their own time
        limit."""
        return False

    async def _launch(self) -> tuple[WorkerEnd, socket.socket]:
        """Starts a child. Returns it, and this process's end of the connection."""
        parent_socket, child_socket = socket.socketpair()
        with child_socket:
            return await self._start(child_socket), parent_socket

    async def _start(self, child_socket: socket.socket) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *worker_command(sys.executable, child_socket.fileno()),
            pass_fds=(child_socket.fileno(),),
            stdin=asyncio.subprocess.DEVNULL,
        )

    def _set_loaded(self, info: InfoT) -> None:
        """Notes that the child has loaded. `info`: its report."""
        self._has_loaded, self._is_loading = True, False
        if not self._ready_future().done():
            self._ready_future().set_result(info)

    async def _wait_until_restarted(self) -> None:
        """Waits until a child that is being restarted has loaded. Raises EngineCrashed if that
        takes longer than loading may take."""
        try:
            async with asyncio.timeout(self._load_timeout_s):
                await self.ready()
        except TimeoutError:
            why = f"{self._died}, and did not come back in {self._load_timeout_s:.0f} s"
            raise EngineCrashed(self._kind, self._name, why) from None

    async def _run_child(self) -> None:
        """Runs one child from its start to its death. Raises EngineError when it is gone."""
        self._is_loading = True
        process, parent_socket = await self._launch()
        self._process = process
        try:
            reader, self._writer = await asyncio.open_connection(sock=parent_socket)
            async with asyncio.timeout(self._load_timeout_s) as deadline:
                await self._send(self._load)
                replies = self._reader()
                while data := await self._next(reader):
                    for reply in replies.receive_data(data):
                        self._receive(reply)
                    # it has loaded: from here on it may run without a time limit
                    if not self._is_loading:
                        deadline.reschedule(None)
        except TimeoutError:
            raise EngineTimeout(self._kind, self._name, "did not load in time") from None
        except ConnectionError:
            pass  # the child died before it had read all our data
        finally:
            self._abandon_requests(self._died)
            if self._writer is None:
                parent_socket.close()  # cancelled before the connection was open
            else:
                self._writer.close()
                self._writer = None
            await self._reap(process)
            self._process = None
        if self._is_loading and process.returncode == REFUSED_STATUS:
            why = (
                "its library refuses the model's files, or the settings do not fit them; the"
                " library's own message is in the log"
            )
            raise EngineRefused(self._kind, self._name, why)
        phase = "while it loaded" if self._is_loading else "while it served"
        status = "" if process.returncode is None else f" (exit status {process.returncode})"
        why = f"{self._died} {phase}{status}"
        raise EngineCrashed(self._kind, self._name, why)

    async def _next(self, reader: asyncio.StreamReader) -> bytes:
        """Returns the child's next data.

        Sends a ping to a child that is idle and silent: otherwise the next request would be the
        first to notice that it hangs. Raises EngineTimeout if the ping is not answered.
        """
        is_pinged = False
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    return await reader.read(READ_BYTES)
            except TimeoutError:
                if self._is_loading or self._is_busy():
                    continue  # loading and working have time limits of their own
                if is_pinged:
                    self._kill()
                    raise EngineTimeout(self._kind, self._name, "hung with nothing to do") from None
                is_pinged = True
                self._write_message(PingRequest(0))

    async def _send(self, message: Struct) -> None:
        if self._writer is None:
            raise EngineCrashed(self._kind, self._name, self._died)
        try:
            self._writer.write(frame(message))
        except RemoteProtocolError as exc:
            raise EngineError(self._kind, self._name, str(exc)) from exc
        with suppress(ConnectionError):  # the reading side reports the same death
            await self._writer.drain()

    def _write_message(self, message: Struct) -> None:
        """Writes a small message without waiting until it is sent."""
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
            ready.exception()  # mark it as retrieved: run() raises it, too

    def _fail_reload(self, exc: Exception) -> None:
        """Reports the failed restart to the callers that wait now. Later callers wait for the next
        child."""
        why = exc.detail if isinstance(exc, EngineError) else str(exc)
        self._fail_ready(
            EngineCrashed(self._kind, self._name, f"crashed, and does not load again: {why}")
        )
        self._ready = None

    def _abandon_requests(self, why: str) -> None:
        """Fails all requests in flight. Later callers wait for the next child."""
        self._fail_requests(why)
        if self._ready is not None and self._ready.done():
            self._ready = None

    def _kill(self) -> None:
        # first: no request may go to a dying process
        self._abandon_requests("its worker process hung")
        if self._process is not None:
            _kill_process(self._process)

    async def _reap(self, process: WorkerEnd) -> None:
        try:
            async with asyncio.timeout(EXIT_GRACE_S):
                await process.wait()
        except TimeoutError:
            _kill_process(process)
            await process.wait()
        except asyncio.CancelledError:
            _kill_process(process)
            raise


def _kill_process(process: WorkerEnd) -> None:
    """Kills a process that may have ended just now. The error for that is an OSError: on the way
    out of a cancelled task it would take the place of the cancellation, and `run` would start
    another child."""
    with suppress(ProcessLookupError):
        process.kill()
