"""Where the workers of models run: in child processes of this gateway, or elsewhere."""

from collections.abc import Mapping
from typing import Protocol

from core.ports import Clock, Metrics
from engines.base import WorkerProfile
from serving.asr.model import AsrWorkerPool, LoadedRecogniser
from serving.placement.offers import LoadableModel
from serving.workers.engine_process import EngineProcess, InfoT, StreamEngine, engine_process


class WorkerSource(Protocol):
    """Prepares the workers of models. `OwnWorkers` is one, and
    `serving.model_host.client.HostedWorkers`."""

    def recogniser(self, offer: LoadableModel, clock: Clock) -> LoadedRecogniser:
        """Returns a recogniser with its queue; its `run` loads it."""
        ...

    def process(
        self,
        kind: str,
        engine: str,
        options: Mapping[str, object],
        info_type: type[InfoT],
        profile: WorkerProfile,
        max_calls: int | None = None,
    ) -> StreamEngine[InfoT]:
        """Returns the engine of a voice or a language model; its `running` loads it. `max_calls`:
        most calls at once, where several gateways share the process."""
        ...


class OwnWorkers:
    """Child processes of this process, with schedulers here (a `WorkerSource`)."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def recogniser(self, offer: LoadableModel, clock: Clock) -> AsrWorkerPool:
        """Returns a pool of worker processes."""
        return AsrWorkerPool(offer, clock, self._metrics)

    def process(
        self,
        kind: str,
        engine: str,
        options: Mapping[str, object],
        info_type: type[InfoT],
        profile: WorkerProfile,
        max_calls: int | None = None,
    ) -> EngineProcess[InfoT]:
        """Returns a worker process, whose only user limits its calls itself."""
        _ = max_calls
        return engine_process(kind, engine, options, info_type, self._metrics, profile)
