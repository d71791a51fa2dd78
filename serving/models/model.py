"""One model of any kind, loaded or not, as its users see it, and its lifetimes in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from core.errors import ConfigError, EarshotError, EngineError
from core.tasks import Backoff
from engines.registry import EngineKind
from serving.placement.offers import LoadableModel
from serving.placement.whisper import CPU

if TYPE_CHECKING:
    from serving.models.registry import ModelRegistry

BACKOFF_S = (2.0, 5.0, 15.0, 60.0)
"""Seconds until a model that did not load may be tried again, after the first, second, ... failure
in a row. Loading reads gigabytes, so the waits are long."""

ModelState = Literal["loaded", "loading", "unloaded", "failed", "unusable"]
"""State of a model. failed: the last load failed, the next use tries again after a wait.
unusable: its folder cannot be read, or its engine is missing."""

InfoT = TypeVar("InfoT")
"Type of the properties of a model, such as `AsrInfo`."
InfoT_co = TypeVar("InfoT_co", covariant=True)


class LoadedModel(Protocol[InfoT_co]):
    """A model in memory. Start `run` in a task, then await `ready`."""

    @property
    def is_ready(self) -> bool:
        """True if the model can compute now. A worker that crashed is restarted."""
        ...

    @property
    def waiting(self) -> int:
        """Number of requests in its queue, which no worker has taken yet."""
        ...

    async def run(self) -> None:
        """Keeps the model running until it is cancelled. Raises EngineError when the very first
        load fails."""
        ...

    async def ready(self) -> InfoT_co:
        """Waits until the model is loaded, and returns its properties."""
        ...

    async def warm_up(self) -> None:
        """Computes something once, so that the first request is fast. Raises EngineError if the
        model cannot compute."""
        ...

    def resident_mb(self) -> float:
        """Returns the memory of its processes, in MB; 0 if none is running."""
        ...


LoadedT = TypeVar("LoadedT", bound=LoadedModel[Any])
"Type of a model of one kind while it is in memory."


@dataclass(frozen=True, slots=True)
class ModelLoader(Generic[InfoT, LoadedT]):
    """Functions that describe and load the models of one kind."""

    kind: EngineKind
    "Kind of the models: in errors, in names of tasks, and in names of metrics."
    describe: Callable[[LoadableModel], InfoT]
    "Reads the properties of a model without loading it. Raises EngineError, ConfigError."
    start: Callable[[LoadableModel], Awaitable[LoadedT]]
    "Prepares a model, whose `run` then loads it."


@dataclass(slots=True, eq=False)
class ModelLifetime(Generic[LoadedT]):
    """The time during which a model is, or is about to be, in memory: from the request to load it
    to its end. A model that is being unloaded may be loaded again already, in another lifetime."""

    model: "ServedModel[Any, LoadedT]"
    ready: asyncio.Future[LoadedT]
    "Gets the loaded model, or the error that prevented loading."
    memory_mb: dict[str, float] = field(default_factory=dict)
    "Memory that the model takes, in MB by device; empty while it waits for room."
    unload: asyncio.Event = field(default_factory=asyncio.Event)
    "Set to have the model unloaded."
    is_evicted: bool = False
    "True: another model needs its room."
    loaded: LoadedT | None = None
    "The model once it is loaded and warm."
    task: asyncio.Task[None] | None = None
    "Task that loads and serves the model."

    def measure(self) -> None:
        """Replaces the memory estimate of a model on the processor by what its processes really
        take, which is known once they have computed something."""
        if self.loaded is not None and set(self.memory_mb) == {CPU}:
            self.memory_mb[CPU] = self.loaded.resident_mb() or self.memory_mb[CPU]


class ServedModel(Generic[InfoT, LoadedT]):
    """One model by its name, shared by all its users. Its first use loads it, and it is not
    unloaded while it is in use or held.

    The base of each kind's class, such as `serving.asr.model.ServedRecogniser`.
    """

    def __init__(
        self,
        offer: LoadableModel,
        loader: ModelLoader[InfoT, LoadedT],
        registry: "ModelRegistry",
    ) -> None:
        """Creates a model that is not loaded. `registry`: loads it and unloads it."""
        self.offer, self.loader = offer, loader
        self._registry = registry
        self._info: InfoT | None = None
        self._problem: EarshotError | None = None
        self.lifetime: ModelLifetime[LoadedT] | None = None
        "Present lifetime; None while the model is neither loaded nor being loaded."
        self.uses = 0
        "Number of requests in flight, and of sessions that hold it."
        self.last_used_s = 0.0
        "Clock time at which its last use ended."
        self.measured_mb: dict[str, float] = {}
        "Measured memory of its last lifetime, by device; more exact than the estimate."
        self.backoff = Backoff(BACKOFF_S)
        self.failure: EngineError | None = None
        "Error of the last load, if that failed."
        self.retry_at_s = 0.0
        "Clock time from which a failed load may be tried again."

    @property
    def kind(self) -> EngineKind:
        """Kind of the model, such as asr."""
        return self.loader.kind

    @property
    def info(self) -> InfoT:
        """Properties of the model, read from its folder without loading it. Raises EngineError when
        the model cannot be used."""
        if self._info is None and (problem := self.problem):
            raise EngineError(self.kind, self.offer.name, str(problem)) from problem
        assert self._info is not None
        return self._info

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 codes of the languages that it knows; empty if it knows none by itself."""
        return ()

    @property
    def dimensions(self) -> int:
        """Length of its vectors; 0 if it makes none or cannot be used."""
        return 0

    @property
    def problem(self) -> EarshotError | None:
        """Error for which the model cannot be used; None if no problem is known."""
        if self._info is None and self._problem is None:
            try:
                self._info = self.loader.describe(self.offer)
            except (EngineError, ConfigError) as error:
                self._problem = error
        return self._problem

    @property
    def loaded(self) -> LoadedT | None:
        """The model in memory; None if it is not loaded."""
        return self.lifetime.loaded if self.lifetime is not None else None

    @property
    def is_ready(self) -> bool:
        """True if the model is loaded and can compute now."""
        loaded = self.loaded
        return loaded is not None and loaded.is_ready

    @property
    def state(self) -> ModelState:
        """Present state of the model."""
        if self.lifetime is not None:
            return "loading" if self.loaded is None else "loaded"
        if self.problem is not None:
            return "unusable"
        return "unloaded" if self.failure is None else "failed"

    @property
    def memory_mb(self) -> float:
        """Memory that it takes now on all devices, in MB; 0 while it is not loaded."""
        if self.lifetime is None or self.loaded is None:
            return 0.0
        return sum(self.lifetime.memory_mb.values())

    def is_outdated(self, offer: LoadableModel) -> bool:
        """True if the model is unused and its folder has changed or could not be read. Then it is
        read again."""
        is_idle = self.lifetime is None and self.uses == 0
        return is_idle and (self._problem is not None or offer.size_mb != self.offer.size_mb)

    def set_loaded(self, info: InfoT) -> None:
        """Notes that the model was loaded and has reported its properties."""
        self._info, self._problem = info, None
        self.backoff.reset()
        self.failure, self.retry_at_s = None, 0.0

    async def load(self) -> LoadedT:
        """Returns the model in memory; loads it and warms it up, if that has not been done. Raises
        EngineError when it fails to load, OverloadedError when there is no room for it now."""
        if self.loaded is not None:
            return self.loaded
        # Shielded: a cancelled request must not end the load for others.
        return await asyncio.shield(self._registry.begin(self))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keeps the model in memory while the body runs, and starts to load it at once. So the
        first request of a session does not have to wait for the load."""
        with self.in_use():
            with suppress(EngineError):  # the first request reports it
                self._registry.begin(self)
            yield

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps the model in memory while the body runs, if it is loaded."""
        self.uses += 1
        try:
            yield
        finally:
            self.uses -= 1
            self._registry.released(self)


AnyModel = ServedModel[Any, Any]
"A model of any kind."

AnyLifetime = ModelLifetime[Any]
"A lifetime of a model of any kind."
