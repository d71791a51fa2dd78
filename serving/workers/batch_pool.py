"""A loaded model for texts, images or speakers: one worker with its scheduler."""

from enum import IntEnum
from typing import Any, Generic, Protocol, TypeVar

import psutil

from core.ports import Clock, Metrics
from engines.runtime.worker.protocol import LoadRequest
from serving.scheduling.policy import BatchModelInfo, BatchWorker, ItemT_contra, SchedulingPolicy
from serving.scheduling.scheduler import Scheduler
from serving.workers.batch_process import ItemT, ResultT

InfoT = TypeVar("InfoT", bound=BatchModelInfo)
"Type of the properties that the engine reports once it has loaded."


InfoT_co = TypeVar("InfoT_co", bound=BatchModelInfo, covariant=True)


class BatchEngine(BatchWorker[ItemT_contra, ResultT], Protocol[InfoT_co, ItemT_contra, ResultT]):
    """An engine whose calls are batches, wherever it runs: `BatchProcess`, or
    `serving.cluster.engine.ReplicatedBatchEngine`."""

    @property
    def pid(self) -> int | None:
        """Number of its process on this machine; None if there is none now."""
        ...

    @property
    def replicas(self) -> int:
        """Largest number of copies of the engine, each of which computes one call at a time."""
        ...

    async def ready(self) -> InfoT_co:
        """Waits until the model is loaded, and returns its properties."""
        ...


class BatchEngineSource(Protocol):
    """Prepares engines whose calls are batches elsewhere than in processes of this server."""

    def batch_engine(
        self,
        load: LoadRequest,
        info: type[InfoT],
        method: str,
        result: type[ResultT],
        *,
        name: str,
    ) -> BatchEngine[InfoT, Any, ResultT]:
        """Returns an engine; its `run` loads it. The arguments are those of `BatchProcess`."""
        ...


class BatchWorkerPool(Scheduler[ItemT, ResultT], Generic[InfoT, ItemT, ResultT]):
    """A `LoadedModel` with one worker, which has a lane for each of its replicas. `run` starts
    it."""

    def __init__(
        self,
        process: BatchEngine[InfoT, ItemT, ResultT],
        policy: SchedulingPolicy[Any],
        warm_up: tuple[ItemT, IntEnum],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`warm_up`: item that is computed once after the load, and its priority."""
        self._process, self._warm_up = process, warm_up
        super().__init__([process], policy, clock, metrics, lanes=process.replicas)

    @property
    def is_ready(self) -> bool:
        """True if the worker is running now. One that crashed is restarted."""
        return self._process.is_ready

    async def ready(self) -> InfoT:
        """Waits until the worker has loaded the model, and returns its properties."""
        await super().ready()
        return await self._process.ready()

    async def warm_up(self) -> None:
        """Computes one item. Raises EngineError if the model cannot."""
        await self.submit(*self._warm_up)

    def resident_mb(self) -> float:
        """Returns the memory of the worker process in MB; 0 if it is not running."""
        if self._process.pid is None:
            return 0.0
        try:
            return float(psutil.Process(self._process.pid).memory_info().rss / 2**20)
        except psutil.Error:
            return 0.0  # the process has died just now
