"""One ASR model in a supervised child process, which runs `engines.runtime.worker.main`."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import EngineCrashed, EngineError, EngineMissing, EngineTimeout
from core.ports import Metrics
from engines.base import AsrInfo, AsrItem, AsrResult
from engines.runtime.worker.protocol import (
    AsrItemMessage,
    CancelRequest,
    DecodeReply,
    DecodeRequest,
    FailureReply,
    ForgetRequest,
    LoadRequest,
    MessageFrameReader,
    ReadyReply,
    WorkerReply,
    reply_reader,
)
from serving.workers.child_process import ChildProcessWorker
from serving.workers.hang_detection import FAILURES, HangDetector

logger = logging.getLogger(__name__)


class ProcessWorker(ChildProcessWorker[AsrInfo, WorkerReply]):
    """Worker that runs a model in one child process. `run` supervises it; the other methods are for
    its callers."""

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
        """Prepares the worker; `run` starts it.

        `kind`: kind of the engine, "asr". `options`: settings of the engine. `index`: number of
        this worker among those of the model. `called`: name of the model in logs and errors,
        because an engine has several models.
        """
        name = called or engine
        load = LoadRequest(kind, engine, dict(options))
        super().__init__(load, metrics, name=name, label=f"{kind}.{name}[{index}]")
        self._pending: dict[int, asyncio.Future[list[AsrResult]]] = {}
        self._next_id = 0
        self._patience = HangDetector()

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Runs one batch, and returns one result per item.

        Raises EngineError: EngineCrashed when the process died; EngineTimeout when it did not
        answer in time, which kills and restarts it.
        """
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
                await self._send(
                    DecodeRequest(request_id, [AsrItemMessage.of(item) for item in items])
                )
                results = await answer
        except TimeoutError:
            why = f"no answer in {limit_s:.0f} s"
            logger.error("! %s: %s; the process is killed", self._label, why)
            self._kill()
            raise EngineTimeout(self._kind, self._name, why) from None
        except asyncio.CancelledError:
            self._tell(CancelRequest(request_id))
            raise
        finally:
            self._pending.pop(request_id, None)
        self._patience.learn(items, loop.time() - began)
        return results

    def forget(self, utterance: str) -> None:
        """Drops what the child caches for a cancelled utterance. A child that is down has nothing
        to drop."""
        self._tell(ForgetRequest(utterance))

    def _reader(self) -> MessageFrameReader[WorkerReply]:
        return reply_reader()

    def _is_busy(self) -> bool:
        return bool(self._pending)

    def _lose_work(self, why: str) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(EngineCrashed(self._kind, self._name, why))
                future.exception()  # counts as seen: its caller may be leaving just now
        self._pending.clear()

    def _receive(self, reply: WorkerReply) -> None:
        match reply:
            case ReadyReply(info=info):
                logger.info("= %s: pid %s ready, model %s", self._label, self.pid, info.model)
                self._loaded(info)
            case DecodeReply(request_id=request_id, results=results):
                self._answer(request_id, results)
            case FailureReply(code=code, message=message, request_id=None):
                kind = EngineMissing if code == EngineMissing.code else EngineError
                raise kind(self._kind, self._name, message)
            case FailureReply(code=code, message=message, request_id=int() as request_id):
                self._answer(request_id, EngineError(self._kind, self._name, message))
                if code == EngineError.code and self._patience.ends():
                    why = f"its last {FAILURES} calls failed, so it starts anew"
                    raise EngineError(self._kind, self._name, why)
            case _:
                pass  # a PongReply: its arrival is all that matters

    def _answer(self, request_id: int, answer: list[AsrResult] | EngineError) -> None:
        future = self._pending.get(request_id)
        if future is None or future.done():
            return  # its caller was cancelled meanwhile
        if isinstance(answer, EngineError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
