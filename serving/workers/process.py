"""One ASR model in a supervised child process."""

import asyncio
from collections.abc import Mapping, Sequence

from core.errors import EarshotError, EngineError
from core.ports import Metrics
from engines.base import AsrInfo, AsrItem, AsrResult
from engines.runtime.worker.payloads import DECODE, FORGET, AsrBatch, AsrItemMessage
from engines.runtime.worker.protocol import FailureReply, LoadRequest
from serving.workers.engine_process import EngineProcess


class ProcessWorker(EngineProcess[AsrInfo]):
    """A `BatchWorker` that runs a recogniser in one child process. `run` supervises it; its callers
    use the other methods."""

    def __init__(
        self,
        kind: str,
        engine: str,
        options: Mapping[str, object],
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
        super().__init__(load, AsrInfo, metrics, name=name, label=f"{kind}.{name}[{index}]")

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Runs one batch, and returns one result per item.

        Raises EngineError: EngineCrashed when the process died; EngineTimeout when it did not
        answer in time, which kills and restarts it.
        """
        await self._wait_until_restarted()
        batch = AsrBatch([AsrItemMessage.from_item(item) for item in items])
        loop = asyncio.get_running_loop()
        began = loop.time()
        results = await self.call(
            DECODE, batch, list[AsrResult], self._hang_detector.limit_s(items)
        )
        self._hang_detector.learn(items, loop.time() - began)
        for outcome in (outcome for result in results for outcome in result.short_windows):
            self._metrics.count("earshot_asr_short_windows", outcome=outcome)
        return results

    def forget(self, utterance: str) -> None:
        """Drops what the child caches for a cancelled utterance. A child that is down has nothing
        to drop."""
        self.notify(FORGET, utterance)

    def _describe(self, info: AsrInfo) -> str:
        return f", model {info.model}"

    def _error(self, reply: FailureReply) -> EarshotError:
        """Returns an EngineError for every failure: a batch has several callers, and only one of
        them may have sent a wrong request."""
        error = super()._error(reply)
        return error if isinstance(error, EngineError) else self._engine_error(reply)

    def _load_error(self, reply: FailureReply) -> EngineError:
        """Returns an EngineError for every failure: one model of several that cannot be loaded is
        no reason to end the server."""
        return self._engine_error(reply)
