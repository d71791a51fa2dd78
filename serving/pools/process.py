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
    Cancel,
    Decode,
    Decoded,
    Failed,
    Forget,
    Load,
    Ping,
    Ready,
    Reply,
    Request,
    WireItem,
    frame,
    reply_reader,
    worker_command,
)
from serving.pools.patience import FAILURES, Patience

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


class ProcessWorker:
    """A model in one child process. `run` supervises it; the other methods are for its callers."""

    def __init__(
        self,
        kind: str,
        engine: str,
        options: Mapping[str, Any],
        metrics: Metrics,
        index: int = 0,
        *,
        called: str = "",
    ) -> None:
        """`called`: the model's name, for who reads of it; an engine has several."""
        self._kind, self._engine, self._options = kind, engine, dict(options)
        self._name = called or engine
        self._metrics = metrics
        self._label = f"{kind}.{self._name}[{index}]"
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ready: asyncio.Future[AsrInfo] | None = None
        self._pending: dict[int, asyncio.Future[list[AsrResult]]] = {}
        self._next_id = 0
        self._has_loaded = False
        self._is_loading = False
        self._patience = Patience()

    @property
    def pid(self) -> int | None:
        """Of the living child."""
        return self._process.pid if self._process else None

    @property
    def is_ready(self) -> bool:
        """A child lives and has loaded the model."""
        return self.pid is not None and self._ready is not None and self._ready.done()

    async def ready(self) -> AsrInfo:
        """Wait until the engine is loaded. Raises EngineMissing and its like when it cannot be;
        EngineCrashed when it was lost, and could not be loaded again just now."""
        return await asyncio.shield(self._ready_future())

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Run one batch. Raises EngineError: EngineCrashed, or EngineTimeout, which restarts it."""
        await self._back()
        self._next_id += 1
        request_id = self._next_id
        answer: asyncio.Future[list[AsrResult]] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = answer
        limit_s = self._patience.limit_s(items)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(limit_s):
                await self._send(Decode(request_id, [WireItem.of(item) for item in items]))
                results = await answer
        except TimeoutError:
            why = f"no answer in {limit_s:.0f} s"
            logger.error("! %s: %s; killing it", self._label, why)
            self._kill()
            raise EngineTimeout(self._kind, self._name, why) from None
        except asyncio.CancelledError:
            self._tell(Cancel(request_id))
            raise
        finally:
            self._pending.pop(request_id, None)
        self._patience.learn(items, loop.time() - began)
        return results

    def forget(self, utterance: str) -> None:
        """Drop what the child caches for a cancelled utterance; nothing to do while it is down."""
        self._tell(Forget(utterance))

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
            process = self._process = await asyncio.create_subprocess_exec(
                *worker_command(sys.executable, theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
            )
        reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S) as deadline:
                await self._send(Load(self._kind, self._engine, self._options))
                replies = reply_reader()
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
                if self._is_loading or self._pending:
                    continue  # these have limits of their own
                if is_asked:
                    self._kill()
                    raise EngineTimeout(self._kind, self._name, "hung with nothing to do") from None
                is_asked = True
                self._tell(Ping(0))

    def _receive(self, reply: Reply) -> None:
        match reply:
            case Ready(info=info):
                logger.info("= %s: pid %s ready, model %s", self._label, self.pid, info.model)
                self._has_loaded, self._is_loading = True, False
                if not self._ready_future().done():
                    self._ready_future().set_result(info)
            case Decoded(request_id=request_id, results=results):
                self._answer(request_id, results)
            case Failed(code=code, message=message, request_id=None):
                kind = EngineMissing if code == EngineMissing.code else EngineError
                raise kind(self._kind, self._name, message)
            case Failed(code=code, message=message, request_id=int() as request_id):
                self._answer(request_id, EngineError(self._kind, self._name, message))
                if code == EngineError.code and self._patience.ends():
                    why = f"its last {FAILURES} calls failed, so it starts anew"
                    raise EngineError(self._kind, self._name, why)
            case _:
                pass  # a Pong: that it came is all it says

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

    def _tell(self, message: Request) -> None:
        """Small, and not waited for."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(message))

    def _ready_future(self) -> asyncio.Future[AsrInfo]:
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
        for future in self._pending.values():
            if not future.done():
                future.set_exception(EngineCrashed(self._kind, self._name, why))
                future.exception()  # counts as seen: its caller may be leaving just now
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
