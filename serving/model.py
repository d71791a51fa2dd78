"""One ASR model as sessions see it, loaded or not, and the time during which it is in memory."""

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
from core.tasks import Backoff
from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult
from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from serving.placement.offers import AsrModelOffer
from serving.placement.whisper import CPU
from serving.scheduling.scheduler import Scheduler
from serving.workers.process import ProcessWorker

BACKOFF_S = (2.0, 5.0, 15.0, 60.0)
"Until a model that did not load is tried again: loading it reads gigabytes."


class LoadedModel(Protocol):
    """A model in memory; implemented by `ServedModel`."""

    @property
    def is_ready(self) -> bool:
        """True if a worker can decode now."""
        ...

    async def run(self) -> None:
        """Keeps the workers running until it is cancelled."""
        ...

    async def ready(self) -> AsrInfo:
        """Waits until the model is loaded, and returns its properties."""
        ...

    def admit(self, priority: DecodePriority) -> None:
        """Checks that work of this priority is accepted now. Raises OverloadedError."""
        ...

    async def decode(
        self, item: AsrItem, priority: DecodePriority, *, deadline_s: float | None = None
    ) -> AsrResult:
        """Recognises one item. See `Scheduler.submit`."""
        ...

    def hurry(self, utterance: str) -> None:
        """Turns a waiting speculative request into a final one. See `Scheduler.promote`."""
        ...

    def forget(self, utterance: str) -> None:
        """Drops what is cached for an utterance."""
        ...

    def resident_mb(self) -> float:
        """Memory of the worker processes, in MB; 0 if none is running."""
        ...


@dataclass(slots=True, eq=False)
class ModelLifetime:
    """The time during which a model is, or is about to be, in memory: from the request to load it
    to its end."""

    model: "SharedModel"
    ready: asyncio.Future[LoadedModel]
    "Gets the loaded model, or the error that prevented loading."
    memory_mb: dict[str, float] = field(default_factory=dict)
    "Memory that the model takes, in MB by device; empty while it waits for room."
    leave: asyncio.Event = field(default_factory=asyncio.Event)
    "Set to have the model unloaded."
    served: LoadedModel | None = None
    "The model once it is loaded."
    task: asyncio.Task[None] | None = None
    "Task that runs this life."

    def measure(self) -> None:
        """Replaces the memory estimate of a model on the processor by what its workers really take,
        which is known once they have decoded."""
        if self.served is not None and set(self.memory_mb) == {CPU}:
            self.memory_mb[CPU] = self.served.resident_mb() or self.memory_mb[CPU]


class ModelOwner(Protocol):
    """The part of `ModelRegistry` that a `SharedModel` needs."""

    def describe(self, offer: AsrModelOffer) -> AsrInfo:
        """Returns the properties of a model without loading it."""
        ...

    def begin(self, model: "SharedModel") -> asyncio.Future[LoadedModel]:
        """Returns a future for the loaded model; starts to load it if that has not been done."""
        ...

    def released(self, model: "SharedModel") -> None:
        """Notes that one use of the model has ended."""
        ...


class SharedModel:
    """The `Recogniser` that all sessions share for one model. Its first use loads it, and it is not
    unloaded while it is used or held."""

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
        "Measured memory of its last life; more exact than the estimate."
        self.backoff = Backoff(BACKOFF_S)
        self.failure: EngineError | None = None
        self.retry_at_s = 0.0

    @property
    def info(self) -> AsrInfo:
        """Properties of the model, read from its folder without loading it. Raises EngineError when
        the model cannot be used."""
        if self._info is None and (problem := self.problem):
            raise EngineError("asr", self.offer.name, str(problem)) from problem
        assert self._info is not None
        return self._info

    @property
    def problem(self) -> EarshotError | None:
        """Error for which the model cannot be offered; None if no problem is known."""
        if self._info is None and self._problem is None:
            try:
                self._info = self._owner.describe(self.offer)
            except (EngineError, ConfigError) as error:
                self._problem = error
        return self._problem

    @property
    def is_loaded(self) -> bool:
        """True if the model is in memory."""
        return self.life is not None and self.life.served is not None

    @property
    def is_ready(self) -> bool:
        """True if the model is loaded and a worker is running."""
        return self.life is not None and self.life.served is not None and self.life.served.is_ready

    def is_outdated(self, offer: AsrModelOffer) -> bool:
        """True if the model is unused and its folder has changed or could not be read. Then it is
        read again."""
        is_idle = self.life is None and self.uses == 0
        return is_idle and (self._problem is not None or offer.size_mb != self.offer.size_mb)

    def loaded(self, info: AsrInfo) -> None:
        """Notes that the model was loaded and has reported its properties."""
        self._info, self._problem = info, None
        self.backoff.reset()
        self.failure, self.retry_at_s = None, 0.0

    def admit(self, priority: DecodePriority) -> None:
        """Checks that work of many requests is accepted now. Raises OverloadedError. A model that
        is not loaded has no queue, so it accepts."""
        if self.life is not None and self.life.served is not None:
            self.life.served.admit(priority)

    async def decode(
        self, item: AsrItem, priority: DecodePriority, *, deadline_s: float | None = None
    ) -> AsrResult:
        """Recognises one item, and loads the model first if necessary. See `Scheduler.submit`.

        Raises EngineError when the model fails to load, OverloadedError when there is no room for
        it now.
        """
        with self._used():
            life = self.life
            served = life.served if life else None
            if served is None:  # shielded: a cancelled request must not end the load for others
                served = await asyncio.shield(self._owner.begin(self))
            return await served.decode(item, priority, deadline_s=deadline_s)

    def hurry(self, utterance: str) -> None:
        """Turns a waiting speculative request into a final one. See `Scheduler.promote`."""
        if self.life is not None and self.life.served is not None:
            self.life.served.hurry(utterance)

    def forget(self, utterance: str) -> None:
        """Drops what a worker cached for an utterance."""
        if self.life is not None and self.life.served is not None:
            self.life.served.forget(utterance)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keeps the model in memory while the body runs, and starts to load it at once. So the
        first word of a session does not have to wait for the load."""
        with self._used():
            with suppress(EngineError):  # the first decode reports it
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
    """A loaded ASR model: its worker processes and their queue. Start `run` in a task, await
    `ready`, then call `decode`."""

    def __init__(self, offer: AsrModelOffer, clock: Clock, metrics: Metrics) -> None:
        self._workers: Sequence[ProcessWorker] = [
            ProcessWorker("asr", offer.engine, options, metrics, index, called=offer.name)
            for index, options in enumerate(offer.workers)
        ]
        self._scheduler: Scheduler[AsrItem, AsrResult] = Scheduler(
            self._workers, ASR_SCHEDULING, clock, metrics, lanes=offer.lanes
        )

    @property
    def is_ready(self) -> bool:
        """True if a worker is running now. One that crashed is restarted."""
        return any(worker.is_ready for worker in self._workers)

    async def run(self) -> None:
        """Keeps the workers running until it is cancelled. Raises EngineError when the very first
        load fails."""
        await self._scheduler.run()

    async def ready(self) -> AsrInfo:
        """Waits until the model is loaded, and returns its properties."""
        await self._scheduler.ready()
        return await self._workers[0].ready()

    def admit(self, priority: DecodePriority) -> None:
        """Checks that work of many requests is accepted now. Raises OverloadedError."""
        self._scheduler.admit(priority)

    async def decode(
        self, item: AsrItem, priority: DecodePriority, *, deadline_s: float | None = None
    ) -> AsrResult:
        """Recognises one item. See `Scheduler.submit`."""
        return await self._scheduler.submit(item, priority, deadline_s=deadline_s)

    def hurry(self, utterance: str) -> None:
        """Turns a waiting speculative request into a final one. See `Scheduler.promote`."""
        self._scheduler.promote(utterance)

    def forget(self, utterance: str) -> None:
        """Drops what a worker cached for an utterance."""
        self._scheduler.forget(utterance)

    def resident_mb(self) -> float:
        """Returns the memory of the worker processes in MB; 0 if none is running."""
        total = 0.0
        for worker in self._workers:
            if worker.pid is not None:
                try:
                    total += psutil.Process(worker.pid).memory_info().rss / 2**20
                except psutil.Error:
                    continue  # the process has died just now
        return total


# A first decode through the whole path: what is slow or broken the first time shows here.

PITCH_HZ = 140
"Fundamental frequency of the warm-up hum."
SYLLABLES_HZ = 4
"Rate at which the warm-up hum becomes loud and quiet."
LOUDNESS = 6000
"Amplitude of the warm-up hum, as s16."


def warmup_audio() -> Pcm:
    """Returns one second of a hum with syllables, loud enough that no engine skips it as silence.
    int16, 16 kHz."""
    seconds = np.arange(ASR_RATE_HZ) / ASR_RATE_HZ
    hum = sum(np.sin(2 * np.pi * PITCH_HZ * n * seconds) / n for n in range(1, 12))
    loudness = LOUDNESS * np.sin(np.pi * SYLLABLES_HZ * seconds) ** 2
    pcm: Pcm = np.clip(hum * loudness, -32768, 32767).astype(np.int16)
    return pcm


def warmup_item(info: AsrInfo) -> AsrItem:
    """Returns the warm-up hum as an item. It is decoded at one temperature and in a short window:
    its text does not matter, and the first request waits for the end of the load."""
    options = AsrOptions(
        temperatures=(0.0,) if "temperatures" in info.supports else (),
        padding="bucket" if "padding" in info.supports else None,
    )
    return AsrItem(new_id("warm"), warmup_audio(), is_final=True, options=options)


def warmup_error(engine: str, error: EngineError) -> EngineError:
    """Returns the error for a model that loads but cannot decode."""
    return EngineError("asr", engine, f"loads, but its first decode fails: {error}")
