"""The server's side of a language model's process: starts it on demand and again after a crash."""

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import cast

from msgspec.structs import replace

from core.errors import (
    ContextLengthExceeded,
    EngineCrashed,
    EngineError,
    EngineTimeout,
    RemoteProtocolError,
)
from engines.llm.transformers.settings import NAME
from engines.llm.transformers.wire import (
    LlmAbortRequest,
    LlmEndReply,
    LlmFailureReply,
    LlmGenerateRequest,
    LlmLoadReply,
    LlmLoadRequest,
    LlmTextReply,
    reply_reader,
)
from engines.runtime.worker.protocol import frame

logger = logging.getLogger(__name__)

EXIT_GRACE_S = 2.0
"Wait for the process to end after its socket closed; it finishes its current token, or is killed."
REST_S = 5.0
"Pause after a failed load. Until then turns fail at once instead of waiting for the same failure."

LlmWorkerEvent = LlmTextReply | LlmEndReply | LlmFailureReply | EngineError


class LlmWorkerConnection(asyncio.Protocol):
    """The connection to one running process. It passes each reply to the request's queue."""

    def __init__(self) -> None:
        self.loaded: asyncio.Future[LlmLoadReply] = asyncio.get_running_loop().create_future()
        self.waiting: dict[int, asyncio.Queue[LlmWorkerEvent]] = {}
        "Request id -> its replies. A queue is bounded by the longest answer in tokens."
        self.is_open = True
        self._reader = reply_reader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        try:
            for reply in self._reader.receive_data(data):
                self._receive(reply)
        except RemoteProtocolError as exc:
            logger.error("! llm.%s: %s", NAME, exc)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._lose(EngineCrashed("llm", NAME, "its process died"))

    def send(self, message: LlmLoadRequest | LlmGenerateRequest | LlmAbortRequest) -> None:
        """Writes a message without waiting. Raises EngineError if it cannot be sent."""
        if self._transport is None or not self.is_open:
            raise EngineCrashed("llm", NAME, "its process died")
        try:
            self._transport.write(frame(message))
        except RemoteProtocolError as exc:
            raise EngineError("llm", NAME, str(exc)) from exc

    def close(self) -> None:
        """Closes the socket, which makes the process end."""
        if self._transport is not None:
            self._transport.close()
        self.is_open = False

    def _receive(self, reply: LlmLoadReply | LlmTextReply | LlmEndReply | LlmFailureReply) -> None:
        match reply:
            case LlmLoadReply():
                self.loaded.set_result(reply)
            case LlmFailureReply(message=message, request_id=None):
                self._lose(EngineError("llm", NAME, f"the model does not load: {message}"))
            case LlmTextReply(request_id=request_id) | LlmEndReply(request_id=request_id):
                self._pass(request_id, reply)
            case LlmFailureReply(request_id=int() as request_id):
                self._pass(request_id, reply)

    def _pass(self, request_id: int, reply: LlmWorkerEvent) -> None:
        if (queue := self.waiting.get(request_id)) is not None:  # else the answer was aborted
            queue.put_nowait(reply)

    def _lose(self, why: EngineError) -> None:
        if not self.loaded.done():
            self.loaded.set_exception(why)
            self.loaded.exception()  # marks it as retrieved, in case no caller waits for it
        for queue in self.waiting.values():
            queue.put_nowait(why)


class LlmWorkerProcess:
    """The process of one model, started when it is needed. All methods run in one event loop."""

    def __init__(
        self, load: LlmLoadRequest, load_timeout_s: float, *, python: str = sys.executable
    ) -> None:
        """python: path of an interpreter that has torch and transformers."""
        self._load, self._load_timeout_s, self._python = load, load_timeout_s, python
        self._connection: LlmWorkerConnection | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._next_id = 0
        self._failed_at_s: float | None = None
        self._failure: EngineError | None = None

    @property
    def pid(self) -> int | None:
        """Process id; None while it does not run."""
        is_alive = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and is_alive else None

    async def loaded(self) -> LlmLoadReply:
        """Starts the process if needed and waits until the model is loaded.

        Cancelling does not stop the load. Raises EngineError if it fails or takes too long.
        """
        connection = await self._connected()
        try:
            async with asyncio.timeout(self._load_timeout_s):
                return await asyncio.shield(connection.loaded)
        except TimeoutError:
            self.kill()
            raise EngineTimeout("llm", NAME, "the model did not load in time") from None
        except EngineError as exc:
            self._failed_at_s, self._failure = asyncio.get_running_loop().time(), exc
            raise

    async def answer(
        self, request: LlmGenerateRequest, first_s: float, next_s: float
    ) -> AsyncGenerator[LlmTextReply | LlmEndReply, None]:
        """Streams the answer to a request. Closing the generator aborts it within one token.

        The request gets its id here. first_s, next_s: longest wait for the first token and between
        two tokens, in s. Raises EngineError; EngineTimeout after such a wait, which also kills the
        process.
        """
        await self.loaded()
        connection = await self._connected()
        self._next_id += 1
        request = replace(request, request_id=self._next_id)
        queue = connection.waiting[request.request_id] = asyncio.Queue()
        limit_s, is_over = first_s, False
        try:
            connection.send(request)
            while not is_over:
                told = await self._next(queue, limit_s)
                limit_s, is_over = next_s, not isinstance(told, LlmTextReply)
                yield told
        finally:
            del connection.waiting[request.request_id]
            if not is_over and connection.is_open:
                connection.send(LlmAbortRequest(request.request_id))

    async def aclose(self) -> None:
        """Ends the process; a later request starts a new one."""
        connection, process = self._connection, self._process
        self._connection = self._process = None
        if connection is not None:
            connection.close()
        if process is not None:
            await _reaped(process)

    def kill(self) -> None:
        """Kills a process that hangs."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _next(
        self, queue: "asyncio.Queue[LlmWorkerEvent]", limit_s: float
    ) -> LlmTextReply | LlmEndReply:
        try:
            async with asyncio.timeout(limit_s):
                told = await queue.get()
        except TimeoutError:
            logger.error("! llm.%s: no message for %g s; the process is killed", NAME, limit_s)
            self.kill()
            raise EngineTimeout("llm", NAME, f"no token in {limit_s:g} s") from None
        if isinstance(told, EngineError):
            raise told
        if isinstance(told, LlmFailureReply):
            kind = ContextLengthExceeded if told.is_about_length else EngineError
            raise kind("llm", NAME, told.message)
        return told

    async def _connected(self) -> LlmWorkerConnection:
        """Returns the connection to the running process, or to a new one that loads the model."""
        async with self._starting:
            if self._connection is None or not self._connection.is_open:
                self._rest()
                await self.aclose()
                self._connection = await self._started()
            return self._connection

    def _rest(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._failure and self._failed_at_s and now_s < self._failed_at_s + REST_S:
            raise self._failure

    async def _started(self) -> LlmWorkerConnection:
        """Starts a process. Raises EngineCrashed if the system allows none."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = await asyncio.create_subprocess_exec(
                    *_command(self._python, theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL,
                )
            _, connection = await loop.create_connection(LlmWorkerConnection, sock=ours)
        except OSError as exc:
            ours.close()
            raise EngineCrashed("llm", NAME, f"no process: {exc.strerror}") from exc
        except BaseException:
            ours.close()
            raise
        connection.send(self._load)
        logger.info("= llm.%s: pid %d loads %s", NAME, self._process.pid, self._load.path)
        return connection


def _command(python: str, fd: int) -> list[str]:
    """Returns a command line: no downloads, and no threads that spin while they wait."""
    settings = [
        "HF_HUB_OFFLINE=1",
        "HF_HUB_DISABLE_TELEMETRY=1",
        "TOKENIZERS_PARALLELISM=false",
        "OMP_WAIT_POLICY=PASSIVE",
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
    ]
    module = "engines.llm.transformers.worker"
    return ["env", *settings, python, "-m", module, "--fd", str(fd)]


async def _reaped(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(EXIT_GRACE_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.kill()
        raise
