"""Model for texts, images or speakers in a supervised child process, whose calls are batches."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from core.errors import EarshotError, EngineError
from core.ports import Metrics
from engines.base import WorkerProfile
from engines.runtime.worker.protocol import FailureReply, LoadRequest
from serving.workers.engine_process import EngineProcess, InfoT

CALL_LIMIT_S = 60.0
"""Longest time of one call, in seconds. Then the process counts as hung. A call has some hundred
texts at most, and a large model on a small machine takes 100 ms for each."""

NICE = 5
"""Niceness of the process. Where it and a voice turn want the same processor, the turn gets about
two thirds of the time."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class BatchProcess(EngineProcess[InfoT], Generic[InfoT, ItemT, ResultT]):
    """A `BatchWorker` for embeddings, reranking or speakers."""

    def __init__(
        self,
        load: LoadRequest,
        info: type[InfoT],
        method: str,
        result: type[ResultT],
        metrics: Metrics,
        *,
        name: str,
    ) -> None:
        """Prepares the worker; `run` starts it. `info`: type of the model's properties. `method`:
        the engine's method. `result`: type of one result. `name`: name of the model in logs and
        errors."""
        profile = WorkerProfile(nice=NICE)
        label = f"{load.kind}.{name}"
        super().__init__(load, info, metrics, name=name, label=label, profile=profile)
        self._method, self._result = method, result

    async def decode(self, items: Sequence[ItemT]) -> list[ResultT]:
        """Computes one batch. Raises EngineError, see `EngineProcess.call`."""
        await self._wait_until_restarted()
        results: list[ResultT] = await self.call(
            self._method,
            list(items),
            list[self._result],  # type: ignore[name-defined]
            CALL_LIMIT_S,
        )
        self._hang_detector.succeed()
        return results

    def forget(self, sequence: str) -> None:
        """Does nothing: no state is kept between items."""

    def _error(self, reply: FailureReply) -> EarshotError:
        """Returns an EngineError for every failure: a batch has several callers."""
        error = super()._error(reply)
        return error if isinstance(error, EngineError) else self._engine_error(reply)

    def _load_error(self, reply: FailureReply) -> EngineError:
        """Returns an EngineError for every failure: a model that cannot be loaded is no reason to
        end the server."""
        return self._engine_error(reply)
