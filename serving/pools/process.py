"""One model in a supervised child process: started, watched, killed when it hangs, restarted.

The child runs `engines.worker`; both ends speak `engines.wire` over a socket pair. Losing the child
loses the calls in flight, never the server.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from core.errors import (
    EngineCrashed,
    EngineError,
    EngineMissing,
    EngineTimeout,
    RemoteProtocolError,
)
from core.ports import Metrics
from engines.base import AsrInfo, AsrItem, AsrResult
from engines.wire import (
    Decode,
    Decoded,
    Failed,
    Forget,
    Load,
    Ready,
    Reply,
    Request,
    WireItem,
    frame,
    reply_reader,
    worker_command,
)

logger = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 120.0
"A large Whisper from a cold disk takes tens of seconds."
CALL_TIMEOUT_S = 60.0
"Twenty times the longest honest decode on a small machine; past it the worker hangs."
BACKOFF_S = (0.05, 0.2, 1.0, 5.0)
"Waits before the next starts after failures in a row: the first is short, a crash is often single."
STABLE_AFTER_S = 30.0
"A worker that lived this long starts the backoff anew."
EXIT_GRACE_S = 1.0
"A child told to end by closing its socket exits at once; one that does not is killed."
READ_BYTES = 256 * 1024


class ProcessWorker:
    """A model in one child process. `run` supervises it; the other methods are for its callers."""

    def __init__(
        self, kind: str, name: str, options: Mapping[str, Any], metrics: Metrics, index: int = 0
    ) -> None:
        self._kind, self._name, self._options = kind, name, dict(options)
        self._metrics = metrics
        self._label = f"{kind}.{name}[{index}]"
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ready: asyncio.Future[AsrInfo] | None = None
        self._pending: dict[int, asyncio.Future[list[AsrResult]]] = {}
        self._next_id = 0
        self._has_loaded = False

    @property
    def pid(self) -> int | None:
        """Of the living child."""
        return self._process.pid if self._process else None

    @property
    def is_ready(self) -> bool:
        """A child lives and has loaded the model."""
        return self.pid is not None and self._ready is not None and self._ready.done()

    async def ready(self) -> AsrInfo:
        """Wait until the engine is loaded. Raises EngineMissing and its like when it cannot be."""
        return await asyncio.shield(self._ready_future())

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Run one batch. Raises EngineError: EngineCrashed, or EngineTimeout, which restarts it."""
        await self.ready()
        self._next_id += 1
        request_id = self._next_id
        answer: asyncio.Future[list[AsrResult]] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = answer
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await self._send(Decode(request_id, [WireItem.of(item) for item in items]))
                return await answer
        except TimeoutError:
            logger.error("! %s: no answer in %.0f s; killing it", self._label, CALL_TIMEOUT_S)
            self._kill()
            raise EngineTimeout(
                self._kind, self._name, f"no answer in {CALL_TIMEOUT_S:.0f} s"
            ) from None
        finally:
            self._pending.pop(request_id, None)

    def forget(self, utterance: str) -> None:
        """Drop what the child caches for a cancelled utterance; nothing to do while it is down."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(Forget(utterance)))

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
                failures = 1 if loop.time() - started > STABLE_AFTER_S else failures + 1
                self._metrics.count("earshot_worker_restarts", kind=self._kind)
                await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S)) - 1])
        finally:
            self._lose("the server is stopping")

    async def _live(self) -> None:
        """One child, from start to death. Returns or raises when it is gone."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *worker_command(sys.executable, theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
            )
        reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S) as deadline:
                await self._send(Load(self._kind, self._name, self._options))
                replies = reply_reader()
                while data := await reader.read(READ_BYTES):
                    for reply in replies.receive_data(data):
                        self._receive(reply)
                    if self._ready_future().done():
                        deadline.reschedule(None)
        except TimeoutError:
            raise EngineTimeout(self._kind, self._name, "did not load in time") from None
        finally:
            self._lose("its worker process died")
            self._writer.close()
            self._writer = None
            await self._reap(self._process)
            self._process = None

    def _receive(self, reply: Reply) -> None:
        match reply:
            case Ready(info=info):
                logger.info("= %s: pid %s ready, model %s", self._label, self.pid, info.model)
                self._has_loaded = True
                if not self._ready_future().done():
                    self._ready_future().set_result(info)
            case Decoded(request_id=request_id, results=results):
                self._answer(request_id, results)
            case Failed(code=code, message=message, request_id=None):
                kind = EngineMissing if code == EngineMissing.code else EngineError
                raise kind(self._kind, self._name, message)
            case Failed(message=message, request_id=int() as request_id):
                self._answer(request_id, EngineError(self._kind, self._name, message))
            case _:
                pass  # a Pong: proof of life, nothing to hand on

    def _answer(self, request_id: int, answer: list[AsrResult] | EngineError) -> None:
        future = self._pending.get(request_id)
        if future is None or future.done():
            return  # its caller was cancelled meanwhile
        if isinstance(answer, EngineError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    async def _send(self, message: Request) -> None:
        if self._writer is None:
            raise EngineCrashed(self._kind, self._name, "its worker process died")
        try:
            self._writer.write(frame(message))
        except RemoteProtocolError as exc:
            raise EngineError(self._kind, self._name, str(exc)) from exc
        with suppress(ConnectionError):  # the reading side sees the same death and says so
            await self._writer.drain()

    def _ready_future(self) -> asyncio.Future[AsrInfo]:
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
        return self._ready

    def _fail_ready(self, exc: Exception) -> None:
        ready = self._ready_future()
        if not ready.done():
            ready.set_exception(exc)
            ready.exception()  # run() raises it too, so it counts as seen

    def _lose(self, why: str) -> None:
        """Fail what is in flight; later callers wait for the next child."""
        for future in self._pending.values():
            if not future.done():
                future.set_exception(EngineCrashed(self._kind, self._name, why))
        self._pending.clear()
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
