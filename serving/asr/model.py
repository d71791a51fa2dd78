"""ASR models for the registry: their worker processes, and the recogniser that all sessions
share."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import numpy as np
import psutil

from core.audio import ASR_RATE_HZ, Pcm
from core.conversation.ids import new_id
from core.ports import Clock, Metrics
from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult
from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from serving.models.model import LoadedModel, ModelLoader, ServedModel
from serving.models.registry import ModelRegistry, ModelsOfKind
from serving.placement.offers import LoadableModel
from serving.scheduling.scheduler import Scheduler
from serving.workers.process import ProcessWorker

PITCH_HZ = 140
"Fundamental frequency of the warm-up hum."
SYLLABLES_HZ = 4
"Rate at which the warm-up hum becomes loud and quiet."
LOUDNESS = 6000
"Amplitude of the warm-up hum; full scale is 32767."


class LoadedRecogniser(LoadedModel[AsrInfo], Protocol):
    """An ASR model in memory, with its queue. `AsrWorkerPool` is one."""

    def admit(self, priority: DecodePriority) -> None:
        """Checks that work of this priority is accepted now. Raises OverloadedError."""
        ...

    async def submit(
        self, item: AsrItem, priority: DecodePriority, *, deadline_s: float | None = None
    ) -> AsrResult:
        """Recognises one item. See `Scheduler.submit`."""
        ...

    def promote(self, utterance: str, /) -> None:
        """Turns a waiting speculative request into a final one. See `Scheduler.promote`."""
        ...

    def forget(self, utterance: str, /) -> None:
        """Drops what is cached for an utterance."""
        ...


class AsrWorkerPool(Scheduler[AsrItem, AsrResult]):
    """Worker processes of a loaded ASR model, with their scheduler."""

    def __init__(self, offer: LoadableModel, clock: Clock, metrics: Metrics) -> None:
        """Prepares the workers; `run` starts them."""
        self._processes = [
            ProcessWorker("asr", offer.engine, options, metrics, index, called=offer.name)
            for index, options in enumerate(offer.workers)
        ]
        super().__init__(self._processes, ASR_SCHEDULING, clock, metrics, lanes=offer.lanes)

    @property
    def is_ready(self) -> bool:
        """True if a worker is running now. One that crashed is restarted."""
        return any(worker.is_ready for worker in self._processes)

    async def ready(self) -> AsrInfo:
        """Waits until the first worker has loaded the model, and returns its properties. Further
        workers join when they have loaded it, too."""
        await super().ready()
        return await self._processes[0].ready()

    async def warm_up(self) -> None:
        """Recognises a second of sound. Raises EngineError if the model cannot."""
        item = warmup_item(await self.ready())
        await self.submit(item, DecodePriority.FINAL)

    def resident_mb(self) -> float:
        """Returns the memory of the worker processes in MB; 0 if none is running."""
        total = 0.0
        for worker in self._processes:
            if worker.pid is not None:
                try:
                    total += psutil.Process(worker.pid).memory_info().rss / 2**20
                except psutil.Error:
                    continue  # the process has died just now
        return total


class ServedRecogniser(ServedModel[AsrInfo, LoadedRecogniser]):
    """The `Recogniser` that all sessions share for one ASR model. A model that is not loaded has no
    queue and no cache."""

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 codes of the languages that it knows; empty if it cannot be used."""
        return () if self.problem else self.info.languages

    def admit(self, priority: DecodePriority) -> None:
        """Checks that work of many requests is accepted now. Raises OverloadedError."""
        if self.loaded is not None:
            self.loaded.admit(priority)

    async def decode(
        self, item: AsrItem, priority: DecodePriority, *, deadline_s: float | None = None
    ) -> AsrResult:
        """Recognises one item, and loads the model first if necessary. See `Scheduler.submit`.

        Raises EngineError when the model fails to load, OverloadedError when there is no room for
        it now.
        """
        with self.in_use():
            loaded = self.loaded or await self.load()
            return await loaded.submit(item, priority, deadline_s=deadline_s)

    def promote(self, utterance: str) -> None:
        """Turns a waiting speculative request into a final one."""
        if self.loaded is not None:
            self.loaded.promote(utterance)

    def forget(self, utterance: str) -> None:
        """Drops what a worker cached for an utterance."""
        if self.loaded is not None:
            self.loaded.forget(utterance)


def add_recognisers(
    registry: ModelRegistry,
    find_offers: Callable[[], Sequence[LoadableModel]],
    describe: Callable[[LoadableModel], AsrInfo],
    start: Callable[[LoadableModel], Awaitable[LoadedRecogniser]],
) -> ModelsOfKind[ServedRecogniser]:
    """Adds the ASR models to the registry, and returns them by name. See `ModelRegistry.add` and
    `ModelLoader`."""
    loader = ModelLoader("asr", describe, start)
    return registry.add("asr", find_offers, lambda offer: ServedRecogniser(offer, loader, registry))


def warmup_audio() -> Pcm:
    """Returns one second of a hum with syllables, loud enough that no engine skips it as silence.
    int16, 16 kHz."""
    seconds = np.arange(ASR_RATE_HZ) / ASR_RATE_HZ
    hum = sum(np.sin(2 * np.pi * PITCH_HZ * n * seconds) / n for n in range(1, 12))
    loudness = LOUDNESS * np.sin(np.pi * SYLLABLES_HZ * seconds) ** 2
    pcm: Pcm = np.clip(hum * loudness, -32768, 32767).astype(np.int16)
    return pcm


def warmup_item(info: AsrInfo) -> AsrItem:
    """Returns the warm-up hum as an item. It is decoded at one temperature and in a short window,
    because its text does not matter, and the first request waits until the warm-up is over."""
    options = AsrOptions(
        temperatures=(0.0,) if "temperatures" in info.supports else (),
        padding="bucket" if "padding" in info.supports else None,
    )
    return AsrItem(new_id("warm"), warmup_audio(), is_final=True, options=options)
