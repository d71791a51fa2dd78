"""Registry of all models of this server by kind and name. The first use of a model loads it. All
loaded models share a memory budget; an idle one is unloaded when another needs its room."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from core.errors import (
    ConfigError,
    Conflict,
    EarshotError,
    EngineCrashed,
    EngineError,
    OverloadedError,
    first_error,
)
from core.ports import Clock, Metrics
from engines.registry import EngineKind
from serving.models.catalogue import find_entry
from serving.models.memory_budget import MemoryBudget
from serving.models.model import (
    AnyLifetime,
    AnyModel,
    InfoT,
    LoadedT,
    ModelLifetime,
    ModelState,
    ServedModel,
)
from serving.placement.offers import LoadableModel
from serving.placement.whisper import MemoryByDevice

logger = logging.getLogger(__name__)

REFRESH_S = 5.0
"Shortest time between two searches of the models folder for an unknown name."

EXPIRED_S = -math.inf
"Stored as the time of the last search when the models folder has changed: the next use searches."

ModelT = TypeVar("ModelT", bound=AnyModel)
"Class of the models of one kind."

OfferSource = Callable[[], Sequence[LoadableModel]]
"Function that finds the models of one kind, the default model first."


@dataclass(frozen=True, slots=True)
class ModelListing:
    """One model as `/earshot/engines` and `doctor` list it."""

    offer: LoadableModel
    languages: tuple[str, ...]
    "ISO 639-1 codes; empty if the model cannot be used."
    dimensions: int
    "Length of its vectors; 0 if it makes none or cannot be used."
    state: ModelState
    is_default: bool
    is_pinned: bool
    "True: it is not unloaded to make room. The default model is always pinned."
    uses: int
    "Number of requests in flight, and of sessions that hold it."
    memory_mb: float
    "Memory of the machine or the GPU that it takes now; 0 while it is not loaded."
    problem: str
    "Reason why the model cannot be used or failed to load; empty if there is none."


class ModelsOfKind(Generic[ModelT]):
    """The models of one kind by name. Iterating yields the names of the usable ones, the default's
    first. `ModelRegistry.add` makes it.

    The offers are found again when a name is unknown, because a model may have been pulled.
    """

    def __init__(
        self,
        find_offers: OfferSource,
        create: Callable[[LoadableModel], ModelT],
        clock: Clock,
        budget: MemoryBudget,
        *,
        has_default: bool = True,
    ) -> None:
        """Finds the models; loads none. `create`: makes the model of an offer. `budget`: knows
        which models are pinned. `has_default`: False if there may be no model at all."""
        self._find_offers, self._create, self._clock = find_offers, create, clock
        self._budget = budget
        self._models = {offer.name: create(offer) for offer in find_offers()}
        self._aliases = self._names_by_alias()
        self._refreshed_at_s = clock.now()
        self._default = next(iter(self._models.values())) if has_default else None

    @property
    def default(self) -> ModelT:
        """Model that is used when none is named. It is never unloaded to make room. An optional
        kind has none."""
        assert self._default is not None
        return self._default

    def expire(self) -> None:
        """Has the offers found again at the next use, because the models folder has changed."""
        self._refreshed_at_s = EXPIRED_S

    def is_default(self, model: AnyModel) -> bool:
        """True if this is the default model. No model of an optional kind is."""
        return model is self._default

    def __iter__(self) -> Iterator[str]:
        return (name for name, model in self._models.items() if model.problem is None)

    def get(self, name: str, /) -> ModelT | None:
        """Returns the model of that name, short name, or name in the catalogue; None if there is
        none."""
        if self._refreshed_at_s == EXPIRED_S:
            self._refresh()
        return self._find(name) or (self._find(name) if self._refresh() else None)

    def read_all(self) -> None:
        """Reads the properties of every model but the default, so that no request has to wait for
        that later. Call it in a thread, because it reads a megabyte or two for each model."""
        for model in tuple(self._models.values()):
            if model is not self._default:
                _ = model.problem

    def listing(self) -> tuple[ModelListing, ...]:
        """Returns every model, also those that cannot be used."""
        self._refresh()
        return tuple(
            ModelListing(
                offer=model.offer,
                languages=model.languages,
                dimensions=model.dimensions,
                state=model.state,
                is_default=model is self._default,
                is_pinned=self._budget.is_pinned(model),
                uses=model.uses,
                memory_mb=model.memory_mb,
                problem=str(model.problem or model.failure or ""),
            )
            for model in self._models.values()
        )

    def _find_again(self) -> None:
        """Finds the offers again."""
        self._refreshed_at_s = self._clock.now()
        offers = {offer.name: offer for offer in self._find_offers()}
        for name, offer in offers.items():
            model = self._models.get(name)
            if model is None or (model is not self._default and model.is_outdated(offer)):
                self._models[name] = self._create(offer)
        for name, model in tuple(self._models.items()):
            if name not in offers and model.lifetime is None and model is not self._default:
                del self._models[name]
        self._aliases = self._names_by_alias()

    def _find(self, name: str) -> ModelT | None:
        name = self._aliases.get(name, name)
        if name not in self._models and (entry := find_entry(name)):
            name = self._aliases.get(entry.name, entry.name)
        return self._models.get(name)

    def _refresh(self) -> bool:
        """Finds the offers again if the last time was long enough ago. True if that was done."""
        if self._clock.now() - self._refreshed_at_s < REFRESH_S:
            return False
        self._find_again()
        return True

    def _names_by_alias(self) -> dict[str, str]:
        """Returns names by alias. A model's own name wins over another's alias, and the first model
        over later ones."""
        names: dict[str, str] = {}
        for model in self._models.values():
            for alias in model.offer.aliases:
                names.setdefault(alias, model.offer.name)
        return {alias: name for alias, name in names.items() if alias not in self._models}


class ModelRegistry:
    """All models of this server by kind and name. It loads a model at its first use, and unloads
    one that is idle when another needs the memory.

    Example:
        registry = ModelRegistry(room, clock, metrics, room_setting="asr.memory_mb")
        recognisers = add_recognisers(registry, find_offers, describe, start)
        async with registry.running():               # owns the tasks of the loaded models
            model = recognisers.get("small")         # a ServedRecogniser; None: no such model
            result = await model.decode(item, DecodePriority.FINAL)    # loads it first
            assert registry.get("asr", "small") is model
    """

    def __init__(
        self,
        room: MemoryByDevice,
        clock: Clock,
        metrics: Metrics,
        *,
        room_setting: str,
        idle_s: float = 0.0,
    ) -> None:
        """Creates a registry without models. `room`: memory that all models together may take, in
        MB by device. `room_setting`: name of the setting that limits it, for errors. `idle_s`:
        seconds without a use after which a model is unloaded; 0: it stays until another needs its
        room."""
        self._clock, self._metrics = clock, metrics
        self._kinds: dict[EngineKind, ModelsOfKind[Any]] = {}
        self._budget = MemoryBudget(room, room_setting)
        self._tasks: asyncio.TaskGroup | None = None
        self._idle_s = idle_s
        self._has_idle = asyncio.Event()
        "Set when a model becomes idle."

    def add(
        self,
        kind: EngineKind,
        find_offers: OfferSource,
        create: Callable[[LoadableModel], ModelT],
        *,
        is_optional: bool = False,
    ) -> ModelsOfKind[ModelT]:
        """Adds the models of a kind as they are found now, and returns them by name; loads none.

        `find_offers`: returns the models, the default first. It is called again for an unknown
        name. `create`: makes the model of an offer. `is_optional`: False: there is a default model,
        which is never unloaded. True: there may be no model, and any one is unloaded to make room.
        """
        models = ModelsOfKind(
            find_offers, create, self._clock, self._budget, has_default=not is_optional
        )
        self._kinds[kind] = models
        if not is_optional:
            self._budget.pin(models.default)
        return models

    def get(self, kind: EngineKind, name: str, /) -> AnyModel | None:
        """Returns the model of that kind and name; None if there is none."""
        models = self._kinds.get(kind)
        return models.get(name) if models is not None else None

    def find(self, name: str) -> AnyModel | None:
        """Returns the model of that name, of the first kind that has one; None if there is none."""
        return next((model for kind in self._kinds if (model := self.get(kind, name))), None)

    def listing(self) -> Mapping[EngineKind, tuple[ModelListing, ...]]:
        """Returns every model of every kind."""
        return {kind: models.listing() for kind, models in self._kinds.items()}

    def expire(self) -> None:
        """Has the models of every kind found again at the next use, because the models folder has
        changed."""
        for models in self._kinds.values():
            models.expire()

    def pin(self, model: AnyModel) -> None:
        """Keeps a model in memory from its next load on, whatever other models need."""
        self._budget.pin(model)

    def unpin(self, model: AnyModel) -> None:
        """Ends `pin`. Raises Conflict for a kind's default model, which is always pinned."""
        self._refuse_default(model)
        self._budget.unpin(model)
        self._has_idle.set()

    async def unload(self, model: AnyModel) -> None:
        """Unloads a model, and waits until its memory is free. Does nothing if it is not loaded.
        Raises Conflict if it is in use, pinned or being loaded."""
        lifetime = model.lifetime
        if lifetime is None:
            return
        self._refuse_default(model)
        if self._budget.is_pinned(model):
            raise Conflict(f"{model.offer.name} is pinned; unpin it first", code="model_pinned")
        if lifetime.loaded is None:
            raise Conflict(f"{model.offer.name} is being loaded", code="model_busy")
        if model.uses:
            uses = f"{model.uses} requests or sessions"
            raise Conflict(f"{model.offer.name} is in use by {uses}", code="model_busy")
        self._budget.unload(lifetime)
        assert lifetime.task is not None
        await asyncio.wait([lifetime.task])

    def _refuse_default(self, model: AnyModel) -> None:
        if self._kinds[model.kind].is_default(model):
            raise Conflict(
                f"{model.offer.name} is the default model ({model.kind}), which is always kept",
                code="model_is_default",
            )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Allows models to be loaded while the body runs. Leaving it unloads them all."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            idle = tasks.create_task(self._unload_idle(), name="idle-models")
            try:
                yield
            finally:
                self._tasks = None  # from now on `begin` refuses
                idle.cancel()
                for lifetime in self._budget.lifetimes:
                    if lifetime.task is not None:
                        lifetime.task.cancel()

    def begin(self, model: ServedModel[InfoT, LoadedT]) -> asyncio.Future[LoadedT]:
        """Returns the load that is under way or done, or starts a new one. Raises EngineError if
        the last load failed and it is too early to try again."""
        if model.lifetime is not None:
            return model.lifetime.ready
        wait_s = model.retry_at_s - self._clock.now()
        if model.failure is not None and wait_s > 0:
            raise _too_early_error(model.failure, wait_s)
        if self._tasks is None:
            raise _stopping_error(model)
        lifetime = ModelLifetime(model, asyncio.get_running_loop().create_future())
        model.lifetime = lifetime
        self._budget.lifetimes.add(lifetime)
        # An empty context: the task outlives the request that started it, so its log lines must not
        # carry that request's id.
        lifetime.task = self._tasks.create_task(
            self._run(lifetime), name=f"{model.kind}-{model.offer.name}", context=Context()
        )
        return lifetime.ready

    def released(self, model: AnyModel) -> None:
        """Notes that one use of a model has ended."""
        model.last_used_s = self._clock.now()
        if model.uses == 0:
            self._budget.retry()
            self._has_idle.set()

    async def _unload_idle(self) -> None:
        """Unloads models that were not used for `idle_s`."""
        while self._idle_s:
            self._has_idle.clear()
            idle = self._budget.idle()
            wait_s: float | None = None  # nothing is idle: until something is
            if idle:
                wait_s = idle[0].model.last_used_s + self._idle_s - self._clock.now()
                if wait_s <= 0:
                    self._budget.unload(idle[0])
                    continue
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._has_idle.wait()

    async def _run(self, lifetime: AnyLifetime) -> None:
        """Runs one lifetime of a model: reserves room, loads, warms up, serves, ends. Callers that
        wait for the model get its errors."""
        model = lifetime.model
        try:
            while error := await self._attempt(lifetime):
                fallback = model.offer.fallback
                # The fallback is for a GPU that does not work, not for a lack of room or for a
                # model that had been loaded.
                if isinstance(error, OverloadedError) or fallback is None or lifetime.ready.done():
                    self._fail(lifetime, error)
                    break
                logger.warning("! %s: %s; %s instead", model.offer.name, error, fallback.why)
                aliases = model.offer.aliases  # the model keeps its names, such as `default`
                model.offer = replace(fallback, aliases=aliases)
                model.measured_mb, lifetime.memory_mb = {}, {}
        finally:
            self._end(lifetime)

    async def _attempt(self, lifetime: AnyLifetime) -> Exception | None:
        """Serves the model until it is to be unloaded, and returns None; or returns the error that
        ended it."""
        error: Exception | None = None
        try:
            await self._budget.reserve(lifetime)
            async with asyncio.TaskGroup() as tasks:
                await self._load_and_serve(lifetime, tasks)
        except* (EarshotError, OSError) as group:
            error = first_error(group)
        except* Exception as group:  # a bug costs this model, not the server with the others
            logger.error("! %s failed", lifetime.model.offer.name, exc_info=group)
            self._metrics.count("earshot_errors", code=EarshotError.code)
            error = first_error(group)
        return error

    async def _load_and_serve(self, lifetime: AnyLifetime, tasks: asyncio.TaskGroup) -> None:
        """Loads the model and serves it until another model needs its room."""
        began_s, model = self._clock.now(), lifetime.model
        loaded = await model.loader.start(model.offer)
        running = tasks.create_task(loaded.run(), name=f"serve-{model.offer.name}")
        info = await loaded.ready()
        try:
            await loaded.warm_up()
        except EngineError as error:
            why = f"loads, but its first use fails: {error}"
            raise EngineError(model.kind, model.offer.name, why) from error
        took_s = self._clock.now() - began_s
        lifetime.loaded = loaded
        lifetime.measure()
        model.measured_mb = dict(lifetime.memory_mb)
        model.last_used_s = self._clock.now()
        model.set_loaded(info)
        lifetime.ready.set_result(loaded)
        self._budget.retry()  # the caller may have left while it loaded: then it is idle already
        self._has_idle.set()
        self._metrics.observe(f"earshot_{model.kind}_load_seconds", took_s)
        self._count_loaded(model.kind)
        logger.info(
            "= %s: loaded in %.1f s, %.0f MB, %s",
            model.offer.name,
            took_s,
            sum(lifetime.memory_mb.values()),
            model.offer.why,
        )
        await lifetime.unload.wait()
        why = " to make room for another model" if lifetime.is_evicted else ""
        logger.info("= %s: unloaded%s", model.offer.name, why)
        if lifetime.is_evicted:
            self._metrics.count(f"earshot_{model.kind}_evictions")
        running.cancel()

    def _fail(self, lifetime: AnyLifetime, error: Exception) -> None:
        model = lifetime.model
        if not isinstance(error, (EngineError, OverloadedError, ConfigError)):
            error = EngineError(model.kind, model.offer.name, str(error))
        if isinstance(error, EngineError):
            model.failure = error
            model.retry_at_s = self._clock.now() + model.backoff.fail()
        logger.warning("! %s: %s", model.offer.name, error)
        _set_error(lifetime.ready, error)

    def _end(self, lifetime: AnyLifetime) -> None:
        model = lifetime.model
        self._budget.lifetimes.discard(lifetime)
        if model.lifetime is lifetime:
            model.lifetime = None
        lifetime.loaded = None
        _set_error(lifetime.ready, _stopping_error(model))
        self._count_loaded(model.kind)
        self._budget.retry()

    def _count_loaded(self, kind: EngineKind) -> None:
        loaded = sum(
            lifetime.loaded is not None and lifetime.model.kind == kind
            for lifetime in self._budget.lifetimes
        )
        self._metrics.gauge(f"earshot_{kind}_models_loaded", loaded)


def _set_error(ready: asyncio.Future[Any], error: Exception) -> None:
    """Gives an error to the callers that wait for a model. Does nothing if they have the model."""
    if not ready.done():
        ready.set_exception(error)
        ready.exception()  # counts as seen: perhaps no caller waits any more


def _stopping_error(model: AnyModel) -> EngineCrashed:
    return EngineCrashed(model.kind, model.offer.name, "the server is stopping")


def _too_early_error(failure: EngineError, wait_s: float) -> EngineError:
    """Returns the same failure for a caller that asks before the model may be tried again."""
    why = f"{failure.detail}; tried again in {wait_s:.0f} s"
    return type(failure)(failure.stage, failure.engine, why)
