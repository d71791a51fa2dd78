"""One recognition model as sessions see it, loaded or not, and one life of it in memory."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import psutil

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import ConfigError, EarshotError, EngineError
from core.ids import new_id
from core.ports import Clock, Metrics
from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult
from serving.placement.offers import AsrModelOffer
from serving.placement.whisper import CPU
from serving.scheduling.lanes import lanes
from serving.scheduling.scheduler import AsrScheduler, AsrWorker, DecodePriority
from serving.workers.process import ProcessWorker


class LoadedModel(Protocol):
    """A loaded model: `served.ServedModel`."""

    @property
    def is_ready(self) -> bool: ...

    async def run(self) -> None: ...

    async def ready(self) -> AsrInfo: ...

    def admit(self, priority: DecodePriority) -> None: ...

    async def decode(
        self, item: AsrItem, priority: DecodePriority, *, deadline_s: float | None = None
    ) -> AsrResult: ...

    def hurry(self, utterance: str) -> None: ...

    def forget(self, utterance: str) -> None: ...

    def resident_mb(self) -> float: ...


@dataclass(slots=True, eq=False)
class ModelLifetime:
    """From the wish to have a model in memory to its end."""

    model: "SharedModel"
    ready: asyncio.Future[LoadedModel]
    memory_mb: dict[str, float] = field(default_factory=dict)
    "Device -> what it takes; empty while it waits for room."
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    "Set to have it unloaded."
    served: LoadedModel | None = None
    task: asyncio.Task[None] | None = None

    def measure(self) -> None:
        """On the processor, what the workers really take is known once they have decoded."""
        if self.served is not None and set(self.memory_mb) == {CPU}:
            self.memory_mb[CPU] = self.served.resident_mb() or self.memory_mb[CPU]


class ModelOwner(Protocol):
    """What a model needs of the registry."""

    def describe(self, offer: AsrModelOffer) -> AsrInfo: ...

    def begin(self, model: "SharedModel") -> asyncio.Future[LoadedModel]: ...

    def released(self, model: "SharedModel") -> None: ...


class SharedModel:
    """A `Recogniser` for every session. Loaded by its first use; kept while it is used or held."""

    def __init__(self, offer: AsrModelOffer, owner: ModelOwner) -> None:
        self.offer = offer
        self._owner = owner
        self._info: AsrInfo | None = None
        self._problem: EarshotError | None = None
        self.life: ModelLifetime | None = None
        self.uses = 0
        "Requests in flight, and sessions that hold it."
        self.last_used_s = 0.0
        self.measured_mb: dict[str, float] = {}
        "Of its last life; better than the estimate."
        self.failures = 0
        self.failure: EngineError | None = None
        self.retry_at_s = 0.0

    @property
    def info(self) -> AsrInfo:
        """Read from its folder, without loading it. Raises EngineError when it cannot be used."""
        if self._info is None and (problem := self.problem):
            raise EngineError("asr", self.offer.name, str(problem)) from problem
        assert self._info is not None
        return self._info

    @property
    def problem(self) -> EarshotError | None:
        """Why it cannot be offered; None when nothing is known against it."""
        if self._info is None and self._problem is None:
            try:
                self._info = self._owner.describe(self.offer)
            except (EngineError, ConfigError) as error:
                self._problem = error
        return self._problem

    @property
    def is_loaded(self) -> bool:
        return self.life is not None and self.life.served is not None

    @property
    def is_ready(self) -> bool:
        """Loaded, and a worker lives."""
        return self.life is not None and self.life.served is not None and self.life.served.is_ready

    def is_outdated(self, offer: AsrModelOffer) -> bool:
        """Nobody uses it, and its folder has changed, or could not be read: look at it anew."""
        is_idle = self.life is None and self.uses == 0
        return is_idle and (self._problem is not None or offer.size_mb != self.offer.size_mb)

    def loaded(self, info: AsrInfo) -> None:
        """It has told about itself."""
        self._info, self._problem = info, None
        self.failures, self.failure, self.retry_at_s = 0, None, 0.0

    def admit(self, priority: DecodePriority) -> None:
        """Ask before work of many requests. Raises Overloaded. One to be loaded has no queue."""
        if self.life is not None and self.life.served is not None:
            self.life.served.admit(priority)

    async def decode(
        self, item: AsrItem, priority: DecodePriority, *, deadline_s: float | None = None
    ) -> AsrResult:
        """One item; loads the model when it is not there. See `AsrScheduler.decode`.

        Raises EngineError when it does not load, Overloaded when there is no room for it now.
        """
        with self._used():
            life = self.life
            served = life.served if life else None
            if served is None:  # who gives up waiting does not end the load: others wait, too
                served = await asyncio.shield(self._owner.begin(self))
            return await served.decode(item, priority, deadline_s=deadline_s)

    def hurry(self, utterance: str) -> None:
        """See `AsrScheduler.hurry`."""
        if self.life is not None and self.life.served is not None:
            self.life.served.hurry(utterance)

    def forget(self, utterance: str) -> None:
        if self.life is not None and self.life.served is not None:
            self.life.served.forget(utterance)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep it in memory for a session, and begin to load it: the first word need not wait."""
        with self._used():
            with suppress(EngineError):  # the first decode tells
                self._owner.begin(self)
            yield

    @contextmanager
    def _used(self) -> Iterator[None]:
        self.uses += 1
        try:
            yield
        finally:
            self.uses -= 1
            self._owner.released(self)


# A loaded recognition model: its worker processes and their queue, as one thing.


class ServedModel:
    """`run` keeps it alive; `ready` first, then `decode`."""

    def __init__(self, offer: AsrModelOffer, clock: Clock, metrics: Metrics) -> None:
        self._workers: Sequence[ProcessWorker] = [
            ProcessWorker("asr", offer.engine, options, metrics, index, called=offer.name)
            for index, options in enumerate(offer.workers)
        ]
        shared: list[AsrWorker] = [
            lane for worker in self._workers for lane in lanes(worker, offer.lanes)
        ]
        joins = offer.lanes > 1
        self._scheduler = AsrScheduler(
            shared if joins else self._workers, clock, metrics, can_leave=joins
        )

    @property
    def is_ready(self) -> bool:
        """A worker is there now; a crashed one comes back."""
        return any(worker.is_ready for worker in self._workers)

    async def run(self) -> None:
        """Until cancelled. Raises when the very first load fails."""
        await self._scheduler.run()

    async def ready(self) -> AsrInfo:
        return await self._scheduler.ready()

    def admit(self, priority: DecodePriority) -> None:
        self._scheduler.admit(priority)

    async def decode(
        self, item: AsrItem, priority: DecodePriority, *, deadline_s: float | None = None
    ) -> AsrResult:
        return await self._scheduler.decode(item, priority, deadline_s=deadline_s)

    def hurry(self, utterance: str) -> None:
        self._scheduler.hurry(utterance)

    def forget(self, utterance: str) -> None:
        self._scheduler.forget(utterance)

    def resident_mb(self) -> float:
        """What the worker processes take of the machine's memory; 0: none lives."""
        total = 0.0
        for worker in self._workers:
            if worker.pid is not None:
                try:
                    total += psutil.Process(worker.pid).memory_info().rss / 2**20
                except psutil.Error:
                    continue  # it died just now
        return total


# A first decode through the whole path: what is slow or broken the first time shows here.

PITCH_HZ = 140
SYLLABLES_HZ = 4
LOUDNESS = 6000


def warmup_audio() -> Pcm:
    """A second of hum with syllables: loud enough that no engine skips it as silence."""
    seconds = np.arange(ASR_RATE_HZ) / ASR_RATE_HZ
    hum = sum(np.sin(2 * np.pi * PITCH_HZ * n * seconds) / n for n in range(1, 12))
    loudness = LOUDNESS * np.sin(np.pi * SYLLABLES_HZ * seconds) ** 2
    pcm: Pcm = np.clip(hum * loudness, -32768, 32767).astype(np.int16)
    return pcm


def warmup_item(info: AsrInfo) -> AsrItem:
    """The hum as an utterance. Decoded once and in a short window: it is nobody's words, and
    somebody waits for the start."""
    options = AsrOptions(
        temperatures=(0.0,) if "temperatures" in info.supports else (),
        padding="bucket" if "padding" in info.supports else None,
    )
    return AsrItem(new_id("warm"), warmup_audio(), is_final=True, options=options)


def warmup_error(engine: str, error: EngineError) -> EngineError:
    """What a model says that loads and cannot decode."""
    return EngineError("asr", engine, f"loads, but its first decode fails: {error}")
