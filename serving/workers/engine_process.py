"""One engine of any kind in a supervised child process, which runs `engines.runtime.worker.main`.

A call has one result (`call`), or a stream of parts (`stream`). Each can be cancelled.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Generic, Protocol, TypeVar

from msgspec import Raw

from core.errors import (
    ConfigError,
    ContextLengthExceeded,
    EarshotError,
    EngineCrashed,
    EngineError,
    EngineMissing,
    EngineTimeout,
    EngineUnreachable,
    InvalidTokens,
    OverloadedError,
    RemoteProtocolError,
    RequestError,
)
from core.ports import Metrics
from engines.base import WorkerProfile
from engines.runtime.worker.protocol import (
    CallRequest,
    CancelRequest,
    ChunkReply,
    DoneReply,
    FailureReply,
    LoadRequest,
    MessageFrameReader,
    PongReply,
    ReadyReply,
    WorkerReply,
    decode_payload,
    reply_reader,
    worker_command,
)
from serving.workers.child_process import ChildProcessWorker
from serving.workers.hang_detection import FAILURES, HangDetector

logger = logging.getLogger(__name__)

ENGINE_ERRORS: Mapping[str, type[EngineError]] = {
    error_type.code: error_type
    for error_type in (
        ContextLengthExceeded,
        EngineCrashed,
        EngineMissing,
        EngineTimeout,
        EngineUnreachable,
        InvalidTokens,
    )
}
"Errors of engines that keep their class on the way out of the process, by code."

InfoT = TypeVar("InfoT")
"Type of the properties that the engine reports once it has loaded."

InfoT_co = TypeVar("InfoT_co", covariant=True)

ResultT = TypeVar("ResultT")

CallReply = ChunkReply[Raw] | DoneReply[Raw] | EarshotError
"A reply of the process to a call in flight, or the error with which the call was lost."

Replies = asyncio.Queue[CallReply]
"""Replies to one call that were not read yet. The queue has no limit of its own: it cannot hold
more than the result of one call."""


class StreamEngine(Protocol[InfoT_co]):
    """An engine of a voice or a language model, wherever it runs: `EngineProcess`, or
    `serving.cluster.engine.ReplicatedEngine`."""

    @property
    def pid(self) -> int | None:
        """Number of its process on this machine; None if there is none now."""
        ...

    @property
    def is_ready(self) -> bool:
        """True if the engine can take calls now."""
        ...

    @property
    def replicas(self) -> int:
        """Largest number of copies of the engine, each with room for as many calls."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keeps the engine running while the context is open. `ready` reports a failed load."""
        ...

    async def ready(self) -> InfoT_co:
        """Waits until the engine is loaded, and returns its properties. Raises EngineError and
        ConfigError."""
        ...

    def stream(
        self, method: str, arguments: object, part: type[ResultT], /
    ) -> AsyncGenerator[ResultT, None]:
        """Yields the parts of a call's result. Closing the generator cancels the call."""
        ...

    def notify(self, method: str, payload: object, /) -> None:
        """Makes a call whose result is not needed."""
        ...


class EngineProcess(ChildProcessWorker[InfoT, WorkerReply], Generic[InfoT]):
    """Runs an engine in one child process. `run` supervises it; the other methods are for its
    callers."""

    replicas = 1

    def __init__(
        self,
        load: LoadRequest,
        info_type: type[InfoT],
        metrics: Metrics,
        *,
        name: str,
        label: str,
        profile: WorkerProfile | None = None,
        python: str = sys.executable,
    ) -> None:
        """Prepares the worker; `run` starts it.

        `load`: the engine and its settings. `info_type`: type of the properties that it reports.
        `name`: the name in errors. `label`: the name in the log. `profile`: environment and time
        limits. `python`: the interpreter that has the engine's libraries.
        """
        self._profile = profile or WorkerProfile()
        limit_s = self._profile.load_timeout_s
        super().__init__(load, metrics, name=name, label=label, load_timeout_s=limit_s)
        self._info_type, self._python = info_type, python
        self._pending: dict[int, Replies] = {}
        self._next_id = 0
        self._replied_at_s = 0.0
        "Event loop time at which the last message came from the child."
        self._hang_detector = HangDetector()

    async def call(
        self, method: str, payload: object, result: type[ResultT], limit_s: float
    ) -> ResultT:
        """Returns the result of a call. `result`: its type.

        Raises EngineError: EngineCrashed when the process died; EngineTimeout when it did not
        answer in `limit_s` seconds, which kills and restarts it. Other errors of the engine keep
        their class.
        """
        await self._wait_until_restarted()
        with self._open() as (request_id, replies):
            try:
                async with asyncio.timeout(limit_s):
                    await self._send(CallRequest(request_id, method, payload))
                    reply = await replies.get()
            except TimeoutError:
                raise self._kill_hung(limit_s) from None
        if isinstance(reply, EarshotError):
            raise reply
        return self._decoded(reply.payload, result)

    async def stream(
        self, method: str, arguments: object, part: type[ResultT]
    ) -> AsyncGenerator[ResultT, None]:
        """Yields the parts of a call's result as they come. Closing the generator cancels the call.
        `part`: their type.

        Raises like `call`; the time limits are those of the profile. Parts of other calls count,
        too: they show that the process works.
        """
        await self._wait_until_restarted()
        with self._open() as (request_id, replies):
            await self._send(CallRequest(request_id, method, arguments))
            limit_s = self._profile.first_chunk_timeout_s
            while True:
                match await self._next_reply(replies, limit_s):
                    case ChunkReply(payload=payload):
                        limit_s = self._profile.chunk_timeout_s
                        yield self._decoded(payload, part)
                    case DoneReply():
                        self._hang_detector.succeed()
                        return
                    case error:
                        raise error

    def notify(self, method: str, payload: object) -> None:
        """Makes a call whose result is not needed. A child that is down does not get it."""
        self._next_id += 1
        self._write_message(CallRequest(self._next_id, method, payload))

    def _describe(self, info: InfoT) -> str:
        """Returns what the log says about a child that is ready."""
        return ""

    async def _start(self, child_socket: socket.socket) -> asyncio.subprocess.Process:
        profile = self._profile
        command = worker_command(
            self._python, child_socket.fileno(), environment=profile.environment, nice=profile.nice
        )
        return await asyncio.create_subprocess_exec(
            *command, pass_fds=(child_socket.fileno(),), stdin=asyncio.subprocess.DEVNULL
        )

    @contextmanager
    def _open(self) -> Iterator[tuple[int, Replies]]:
        """Registers a call, and yields its id and its replies. A call that is left before its end
        is cancelled."""
        self._next_id += 1
        request_id, replies = self._next_id, Replies()
        self._pending[request_id] = replies
        try:
            yield request_id, replies
        finally:
            if self._pending.pop(request_id, None) is not None:
                self._write_message(CancelRequest(request_id))

    async def _next_reply(self, replies: Replies, limit_s: float) -> CallReply:
        loop = asyncio.get_running_loop()
        asked_at_s = loop.time()
        while True:
            try:
                async with asyncio.timeout_at(max(asked_at_s, self._replied_at_s) + limit_s):
                    return await replies.get()
            except TimeoutError:
                # else another call got a message meanwhile, so the process works: wait on
                if loop.time() >= max(asked_at_s, self._replied_at_s) + limit_s:
                    raise self._kill_hung(limit_s) from None

    def _kill_hung(self, limit_s: float) -> EngineTimeout:
        """Kills the child, and returns the error for the call that found it hung."""
        why = f"no answer in {limit_s:g} s"
        logger.error("! %s: %s; the process is killed", self._label, why)
        self._kill()
        return EngineTimeout(self._kind, self._name, why)

    def _reader(self) -> MessageFrameReader[WorkerReply]:
        return reply_reader()

    def _is_busy(self) -> bool:
        return bool(self._pending)

    def _fail_requests(self, why: str) -> None:
        for replies in self._pending.values():
            replies.put_nowait(EngineCrashed(self._kind, self._name, why))
        self._pending.clear()

    def _receive(self, reply: WorkerReply) -> None:
        self._replied_at_s = asyncio.get_running_loop().time()
        match reply:
            case ReadyReply(info=raw):
                info = decode_payload(raw, self._info_type)
                about = self._describe(info)
                where = f"pid {self.pid} " if self.pid is not None else ""
                logger.info("= %s: %sready%s", self._label, where, about)
                self._set_loaded(info)
            case ChunkReply(request_id=request_id):
                if (replies := self._pending.get(request_id)) is not None:
                    replies.put_nowait(reply)
            case DoneReply(request_id=request_id):
                self._finish(request_id, reply)
            case FailureReply(request_id=None):
                raise self._load_error(reply)
            case FailureReply(code=code, request_id=int() as request_id):
                self._finish(request_id, self._error(reply))
                self._check_failures(code)
            case PongReply():
                pass  # a pong: the base class has noted that a message came

    def _check_failures(self, code: str) -> None:
        """Counts a failed call by its error code. Raises EngineError to have the process replaced
        after several in a row."""
        # only errors of the model library have this code; a wrong request says nothing of the
        # process
        if code == EngineError.code and self._hang_detector.record_failure():
            why = f"its last {FAILURES} calls failed, so it is restarted"
            raise EngineError(self._kind, self._name, why)

    def _finish(self, request_id: int, reply: CallReply) -> None:
        replies = self._pending.pop(request_id, None)
        if replies is not None:  # else its caller was cancelled meanwhile
            replies.put_nowait(reply)

    def _decoded(self, payload: Raw, kind: type[ResultT]) -> ResultT:
        try:
            return decode_payload(payload, kind)
        except RemoteProtocolError as exc:
            raise EngineError(self._kind, self._name, str(exc)) from exc

    def _error(self, reply: FailureReply) -> EarshotError:
        """Returns the error of a call, in the class in which the engine raised it."""
        return error_of(reply, self._kind, self._name)

    def _load_error(self, reply: FailureReply) -> EarshotError:
        """Returns the error for an engine that does not load."""
        if reply.code == ConfigError.code:
            return ConfigError(reply.message)
        return self._engine_error(reply)

    def _engine_error(self, reply: FailureReply) -> EngineError:
        return engine_error_of(reply, self._kind, self._name)


def error_of(reply: FailureReply, kind: str, name: str) -> EarshotError:
    """Returns the error of a failed call, in the class in which the engine raised it. `kind` and
    `name`: the engine, for the text of the error."""
    if reply.is_request_error:
        return RequestError(reply.message, code=reply.code, param=reply.param)
    if reply.retry_after_s is not None:
        wait_s = reply.retry_after_s
        return OverloadedError(reply.message, retry_after_s=wait_s, code=reply.code)
    return engine_error_of(reply, kind, name)


def engine_error_of(reply: FailureReply, kind: str, name: str) -> EngineError:
    """Returns the error of a failed call as an EngineError, whatever its class was."""
    return ENGINE_ERRORS.get(reply.code, EngineError)(kind, name, reply.message)


def engine_process(
    kind: str,
    engine: str,
    options: Mapping[str, object],
    info_type: type[InfoT],
    metrics: Metrics,
    profile: WorkerProfile,
    *,
    python: str = sys.executable,
) -> EngineProcess[InfoT]:
    """Returns the process of a voice or a language model, which is named like its engine."""
    return EngineProcess(
        LoadRequest(kind, engine, dict(options)),
        info_type,
        metrics,
        name=engine,
        label=f"{kind}.{engine}",
        profile=profile,
        python=python,
    )
