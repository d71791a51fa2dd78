"""Every recognition model of this server by name: loaded by its first use, kept within a memory
budget, unloaded when idle and another needs the room.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, replace

from core.errors import ConfigError, EarshotError, EngineCrashed, EngineError, OverloadedError
from core.ports import Clock, Metrics
from engines.base import AsrInfo
from serving.catalogue import find_entry
from serving.memory_budget import MemoryBudget
from serving.model import LoadedModel, ModelLifetime, SharedModel, warmup_error, warmup_item
from serving.placement.offers import AsrModelOffer
from serving.placement.whisper import MemoryByDevice
from serving.scheduling.scheduler import DecodePriority

logger = logging.getLogger(__name__)

BACKOFF_S = (2.0, 5.0, 15.0, 60.0)
"Until a model that did not load is tried again: loading it reads gigabytes."
LOOK_AGAIN_S = 5.0
"How soon an unknown name is looked for in the models folder once more."

ModelStarter = Callable[[AsrModelOffer], Awaitable[LoadedModel]]
ModelReader = Callable[[AsrModelOffer], AsrInfo]
OfferSource = Callable[[], Sequence[AsrModelOffer]]


@dataclass(frozen=True, slots=True)
class ModelListing:
    """One model as `/earshot/engines` and `doctor` list it."""

    offer: AsrModelOffer
    languages: tuple[str, ...]
    is_loaded: bool
    memory_mb: float
    "Of the machine or the GPU; 0 when it is not loaded."
    problem: str


class ModelRegistry:
    """`running` owns the tasks. Iterating gives the names, the default's first."""

    def __init__(
        self,
        find_offers: OfferSource,
        serve: ModelStarter,
        describe: ModelReader,
        room: MemoryByDevice,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`find_offers`: the default first; asked again when a name is not known. `describe` reads
        what a model can do without loading it. `serve` makes its workers."""
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
        return self._default

    def __iter__(self) -> Iterator[str]:
        return (name for name, model in self._models.items() if model.problem is None)

    def get(self, name: str, /) -> SharedModel | None:
        """By name, short name, or as the catalogue calls it; None: nobody is called so."""
        return self._find(name) or (self._find(name) if self._look_again() else None)

    def read_all(self) -> None:
        """Have every model but the default tell what it can. Blocking, for a thread: each reads a
        megabyte or two, and nobody should wait for that later."""
        for model in tuple(self._models.values()):
            if model is not self._default:
                _ = model.problem

    def listing(self) -> tuple[ModelListing, ...]:
        """Every model, also those that cannot be used."""
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
        """Models can be loaded while the body runs; leaving it unloads them."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None  # nothing begins any more
                for life in self._budget.lives:
                    if life.task is not None:
                        life.task.cancel()

    async def load(self, model: SharedModel) -> None:
        """Have it in memory, warm. Raises EngineError, Overloaded."""
        await asyncio.shield(self.begin(model))

    def begin(self, model: SharedModel) -> asyncio.Future[LoadedModel]:
        """The load that is under way, or a new one. Raises EngineError while it is too early."""
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
        # It outlives the request that began it, whose id is no part of what it logs.
        life.task = self._tasks.create_task(
            self._live(life), name=f"asr-{model.offer.name}", context=Context()
        )
        return life.ready

    def released(self, model: SharedModel) -> None:
        """A use of it ended."""
        model.last_used_s = self._clock.now()
        if model.uses == 0:
            self._budget.freed()

    async def _live(self, life: ModelLifetime) -> None:
        """Room, load, warm-up, service, end. Errors go to who waits for it."""
        try:
            while error := await self._attempt(life):
                fallback = life.model.offer.fallback
                if isinstance(error, OverloadedError) or fallback is None or life.ready.done():
                    self._failed(life, error)
                    break
                logger.warning("! %s: %s; %s instead", life.model.offer.name, error, fallback.why)
                aliases = life.model.offer.aliases  # it keeps its names, `default` for one
                life.model.offer = replace(fallback, aliases=aliases)
                life.model.measured_mb, life.memory_mb = {}, {}
        finally:
            self._end(life)

    async def _attempt(self, life: ModelLifetime) -> Exception | None:
        """Until the model is sent away, or why it did not come to that."""
        error: Exception | None = None
        try:
            await self._budget.reserve(life)
            async with asyncio.TaskGroup() as tasks:
                await self._open(life, tasks)
        except* (EarshotError, OSError) as group:
            error = _first(group)
        except* Exception as group:  # a bug costs this model, not the server with the others
            logger.error("! %s failed", life.model.offer.name, exc_info=group)
            self._metrics.count("earshot_errors", code=EarshotError.code)
            error = _first(group)
        return error

    async def _open(self, life: ModelLifetime, tasks: asyncio.TaskGroup) -> None:
        """Until somebody else needs the room."""
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
        self._budget.freed()  # who asked for it may have left: then it is idle
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
        logger.info("= %s: unloaded, another needs its room", model.offer.name)
        self._metrics.count("earshot_asr_evictions")
        running.cancel()

    def _failed(self, life: ModelLifetime, error: Exception) -> None:
        model = life.model
        if not isinstance(error, (EngineError, OverloadedError, ConfigError)):
            error = EngineError("asr", model.offer.name, str(error))
        if isinstance(error, EngineError):
            model.failure = error
            wait_s = BACKOFF_S[min(model.failures, len(BACKOFF_S) - 1)]
            model.failures += 1
            model.retry_at_s = self._clock.now() + wait_s
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
        """Whether the models folder has been read anew: something may have been pulled."""
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
        """A model's own name wins over another's alias, and the first over later ones."""
        found: dict[str, str] = {}
        for model in self._models.values():
            for alias in model.offer.aliases:
                found.setdefault(alias, model.offer.name)
        return {alias: name for alias, name in found.items() if alias not in self._models}


def _stopping(model: SharedModel) -> EngineCrashed:
    return EngineCrashed("asr", model.offer.name, "the server is stopping")


def _again(failure: EngineError, wait_s: float) -> EngineError:
    """The same for one who asks before it is tried again."""
    why = f"{failure.detail}; tried again in {wait_s:.0f} s"
    return type(failure)("asr", failure.engine, why)


def _first(group: BaseExceptionGroup[Exception]) -> Exception:
    """The leaf that tells."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error
