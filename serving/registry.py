"""Registry of all ASR models of this server by name. The first use of a model loads it. All loaded
models share a memory budget; an idle one is unloaded when another needs its room."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, replace

from core.errors import (
    ConfigError,
    EarshotError,
    EngineCrashed,
    EngineError,
    OverloadedError,
    first_error,
)
from core.ports import Clock, Metrics
from engines.base import AsrInfo
from serving.catalogue import find_entry
from serving.memory_budget import MemoryBudget
from serving.model import LoadedModel, ModelLifetime, SharedModel, warmup_error, warmup_item
from serving.placement.offers import AsrModelOffer
from serving.placement.whisper import MemoryByDevice
from serving.scheduling.scheduler import DecodePriority

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 5.0
"Shortest time between two searches of the models folder for an unknown name."

ModelStarter = Callable[[AsrModelOffer], Awaitable[LoadedModel]]
"Creates the workers of a model."
ModelReader = Callable[[AsrModelOffer], AsrInfo]
"Reads the properties of a model without loading it."
OfferSource = Callable[[], Sequence[AsrModelOffer]]
"Finds the models that can be offered, the default model first."


@dataclass(frozen=True, slots=True)
class ModelListing:
    """One model as `/earshot/engines` and `doctor` list it."""

    offer: AsrModelOffer
    languages: tuple[str, ...]
    "ISO 639-1 codes; empty if the model cannot be used."
    is_loaded: bool
    memory_mb: float
    "Memory of the machine or the GPU that it takes now; 0 while it is not loaded."
    problem: str
    "Reason why the model cannot be used or failed to load; empty if there is none."


class ModelRegistry:
    """All ASR models of this server. Iterating yields the names of the usable ones, the default's
    first.

    Example:
        registry = ModelRegistry(find_offers, serve, describe, room, clock, metrics)
        async with registry.running():               # owns the tasks of the loaded models
            model = registry.get("small")            # a SharedModel; None: no such model
            result = await model.decode(item, DecodePriority.FINAL)    # loads it first
    """

    def __init__(
        self,
        find_offers: OfferSource,
        serve: ModelStarter,
        describe: ModelReader,
        room: MemoryByDevice,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """Creates a registry with the models that are found now; loads none.

        `find_offers`: returns the models, the default first. It is asked again for an unknown name.
        `serve`: creates the workers of a model. `describe`: reads a model's properties without
        loading it. `room`: memory that all models together may take, in MB by device.
        """
        self._find_offers, self._serve, self.describe = find_offers, serve, describe
        self._clock, self._metrics = clock, metrics
        self._models = {offer.name: SharedModel(offer, self) for offer in find_offers()}
        self._aliases = self._by_alias()
        self._looked_at_s = clock.now()
        self._default = next(iter(self._models.values()))
        self._budget = MemoryBudget(room, self._default)
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def default(self) -> SharedModel:
        """Model that is used when none is named. It is never unloaded to make room."""
        return self._default

    def __iter__(self) -> Iterator[str]:
        return (name for name, model in self._models.items() if model.problem is None)

    def get(self, name: str, /) -> SharedModel | None:
        """Returns the model of that name, short name, or name in the catalogue; None if there is
        none."""
        return self._find(name) or (self._find(name) if self._look_again() else None)

    def read_all(self) -> None:
        """Reads the properties of every model but the default. Call it in a thread: it blocks, as
        each model takes reading a megabyte or two, and later no request has to wait for that."""
        for model in tuple(self._models.values()):
            if model is not self._default:
                _ = model.problem

    def listing(self) -> tuple[ModelListing, ...]:
        """Returns every model, also those that cannot be used."""
        self._look_again()
        return tuple(
            ModelListing(
                offer=model.offer,
                languages=() if model.problem else model.info.languages,
                is_loaded=model.is_loaded,
                memory_mb=sum(model.life.memory_mb.values())
                if model.life is not None and model.is_loaded
                else 0.0,
                problem=str(model.problem or model.failure or ""),
            )
            for model in self._models.values()
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Allows models to be loaded while the body runs. Leaving it unloads them all."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None  # from now on `begin` refuses
                for life in self._budget.lives:
                    if life.task is not None:
                        life.task.cancel()

    async def load(self, model: SharedModel) -> None:
        """Loads a model and warms it up, if that has not been done. Raises EngineError,
        OverloadedError."""
        await asyncio.shield(self.begin(model))

    def begin(self, model: SharedModel) -> asyncio.Future[LoadedModel]:
        """Returns the load that is under way or done, or starts a new one. Raises EngineError if
        the last load failed and it is too early to try again."""
        if model.life is not None:
            return model.life.ready
        wait_s = model.retry_at_s - self._clock.now()
        if model.failure is not None and wait_s > 0:
            raise _again(model.failure, wait_s)
        if self._tasks is None:
            raise _stopping(model)
        life = ModelLifetime(model, asyncio.get_running_loop().create_future())
        model.life = life
        self._budget.lives.add(life)
        # An empty context: the task outlives the request that started it, so its log lines must not
        # carry that request's id.
        life.task = self._tasks.create_task(
            self._live(life), name=f"asr-{model.offer.name}", context=Context()
        )
        return life.ready

    def released(self, model: SharedModel) -> None:
        """Notes that one use of a model has ended."""
        model.last_used_s = self._clock.now()
        if model.uses == 0:
            self._budget.freed()

    async def _live(self, life: ModelLifetime) -> None:
        """Runs one life of a model: reserves room, loads, warms up, serves, ends. Callers that wait
        for the model get its errors."""
        try:
            while error := await self._attempt(life):
                fallback = life.model.offer.fallback
                # The fallback is for a GPU that does not work, not for a lack of room or for a
                # model that had been loaded.
                if isinstance(error, OverloadedError) or fallback is None or life.ready.done():
                    self._failed(life, error)
                    break
                logger.warning("! %s: %s; %s instead", life.model.offer.name, error, fallback.why)
                aliases = life.model.offer.aliases  # the model keeps its names, such as `default`
                life.model.offer = replace(fallback, aliases=aliases)
                life.model.measured_mb, life.memory_mb = {}, {}
        finally:
            self._end(life)

    async def _attempt(self, life: ModelLifetime) -> Exception | None:
        """Serves the model until it is asked to leave, and returns None; or returns the error that
        ended it."""
        error: Exception | None = None
        try:
            await self._budget.reserve(life)
            async with asyncio.TaskGroup() as tasks:
                await self._open(life, tasks)
        except* (EarshotError, OSError) as group:
            error = first_error(group)
        except* Exception as group:  # a bug costs this model, not the server with the others
            logger.error("! %s failed", life.model.offer.name, exc_info=group)
            self._metrics.count("earshot_errors", code=EarshotError.code)
            error = first_error(group)
        return error

    async def _open(self, life: ModelLifetime, tasks: asyncio.TaskGroup) -> None:
        """Loads the model and serves it until another model needs its room."""
        began_s, model = self._clock.now(), life.model
        served = await self._serve(model.offer)
        running = tasks.create_task(served.run(), name=f"serve-{model.offer.name}")
        info = await served.ready()
        try:
            await served.decode(warmup_item(info), DecodePriority.FINAL)
        except EngineError as error:
            raise warmup_error(model.offer.name, error) from error
        took_s = self._clock.now() - began_s
        life.served = served
        life.measure()
        model.measured_mb = dict(life.memory_mb)
        model.last_used_s = self._clock.now()
        model.loaded(info)
        life.ready.set_result(served)
        self._budget.freed()  # the caller may have left while it loaded: then it is idle already
        self._metrics.observe("earshot_asr_load_seconds", took_s)
        self._count()
        logger.info(
            "= %s: loaded in %.1f s, %.0f MB, %s",
            model.offer.name,
            took_s,
            sum(life.memory_mb.values()),
            model.offer.why,
        )
        await life.leave.wait()
        logger.info("= %s: unloaded to make room for another model", model.offer.name)
        self._metrics.count("earshot_asr_evictions")
        running.cancel()

    def _failed(self, life: ModelLifetime, error: Exception) -> None:
        model = life.model
        if not isinstance(error, (EngineError, OverloadedError, ConfigError)):
            error = EngineError("asr", model.offer.name, str(error))
        if isinstance(error, EngineError):
            model.failure = error
            model.retry_at_s = self._clock.now() + model.backoff.fail()
        logger.warning("! %s: %s", model.offer.name, error)
        if not life.ready.done():
            life.ready.set_exception(error)
            life.ready.exception()  # who only held it does not ask

    def _end(self, life: ModelLifetime) -> None:
        self._budget.lives.discard(life)
        if life.model.life is life:
            life.model.life = None
        life.served = None
        if not life.ready.done():
            life.ready.set_exception(_stopping(life.model))
            life.ready.exception()
        self._count()
        self._budget.freed()

    def _count(self) -> None:
        loaded = sum(life.served is not None for life in self._budget.lives)
        self._metrics.gauge("earshot_asr_models_loaded", loaded)

    def _find(self, name: str) -> SharedModel | None:
        name = self._aliases.get(name, name)
        if name not in self._models and (entry := find_entry(name)):
            name = self._aliases.get(entry.name, entry.name)
        return self._models.get(name)

    def _look_again(self) -> bool:
        """Reads the models folder again if that is allowed by now, because a model may have been
        pulled. True if it was read."""
        now = self._clock.now()
        if now - self._looked_at_s < LOOK_AGAIN_S:
            return False
        self._looked_at_s = now
        offers = {offer.name: offer for offer in self._find_offers()}
        for name, offer in offers.items():
            model = self._models.get(name)
            if model is None or (model is not self._default and model.is_outdated(offer)):
                self._models[name] = SharedModel(offer, self)
        for name, model in tuple(self._models.items()):
            if name not in offers and model.life is None and model is not self._default:
                del self._models[name]
        self._aliases = self._by_alias()
        return True

    def _by_alias(self) -> dict[str, str]:
        """Returns names by alias. A model's own name wins over another's alias, and the first model
        over later ones."""
        found: dict[str, str] = {}
        for model in self._models.values():
            for alias in model.offer.aliases:
                found.setdefault(alias, model.offer.name)
        return {alias: name for alias, name in found.items() if alias not in self._models}


def _stopping(model: SharedModel) -> EngineCrashed:
    return EngineCrashed("asr", model.offer.name, "the server is stopping")


def _again(failure: EngineError, wait_s: float) -> EngineError:
    """Returns the same failure for a caller that asks before the model may be tried again."""
    why = f"{failure.detail}; tried again in {wait_s:.0f} s"
    return type(failure)("asr", failure.engine, why)
