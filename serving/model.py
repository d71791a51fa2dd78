"""One recognition model as sessions see it, loaded or not, and one life of it in memory."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from core.errors import ConfigError, EarshotError, EngineError
from engines.base import AsrInfo, AsrItem, AsrResult
from serving.placement.offers import AsrModelOffer
from serving.placement.whisper import CPU
from serving.scheduling.scheduler import DecodePriority


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
