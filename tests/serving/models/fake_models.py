"""Models that load and decode in virtual time, and a registry of four of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import numpy as np

from core.errors import EngineError, EngineMissing
from engines.base import AsrInfo, AsrItem, AsrResult
from serving.asr.model import ServedRecogniser, add_recognisers
from serving.asr.scheduling import DecodePriority
from serving.models.registry import ModelRegistry, ModelsOfKind
from serving.placement.offers import LoadableModel
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts, LoopClock

LOAD_S, DECODE_S = 3.0, 0.5
Recognisers = ModelsOfKind[ServedRecogniser]

REQUEST = ContextVar("request", default="")
ITEM = AsrItem("item_1", np.zeros(100, np.int16), is_final=True)


def offer(name: str, memory_mb: float = 100, device: str = "cpu", *aliases: str) -> LoadableModel:
    return LoadableModel(name, "fake", ({},), {device: memory_mb}, aliases, memory_mb)


@dataclass
class FakeServed:
    """A model that loads in LOAD_S and decodes in DECODE_S; `breaks` names the step that fails."""

    name: str
    breaks: str = ""
    resident: float = 0.0
    is_ready: bool = False
    decoded: int = 0
    request: str = ""
    waiting: int = 0
    is_stopped: bool = False
    ends_in_s: float = 0.0
    "The time that it takes to leave the memory."
    _loaded: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        self.request = REQUEST.get()
        try:
            await asyncio.sleep(LOAD_S)
            if self.breaks == "load":
                raise EngineMissing("asr", "fake", "no weights")
            if self.breaks == "bug":
                raise KeyError("nobody expected this")
            self.is_ready = True
            self._loaded.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(self.ends_in_s)
            self.is_stopped, self.is_ready = True, False

    async def ready(self) -> AsrInfo:
        await self._loaded.wait()
        return AsrInfo("fake", self.name, ("en", "de"), 4, is_incremental=False)

    async def warm_up(self) -> None:
        await self.submit(ITEM, DecodePriority.FINAL)

    def admit(self, priority: DecodePriority) -> None:
        pass

    async def submit(
        self, item: AsrItem, priority: DecodePriority, *, deadline_s: float | None = None
    ) -> AsrResult:
        assert self.is_ready
        if self.breaks == "decode":
            raise EngineError("asr", "fake", "bad kernels")
        await asyncio.sleep(DECODE_S)
        self.decoded += 1
        return AsrResult(self.name, 1.0, "en")

    def promote(self, utterance: str) -> None:
        pass

    def forget(self, utterance: str) -> None:
        pass

    def resident_mb(self) -> float:
        return self.resident


class World:
    """A registry of models `a` (the default), `b`, `c`, `d` of 100 MB each in 250 MB."""

    def __init__(self, *offers: LoadableModel, cpu_mb: float = 250, idle_s: float = 0) -> None:
        self.offers = [*offers] or [offer(name) for name in "abcd"]
        self.lives: list[FakeServed] = []
        self.breaks: dict[str, str] = {}
        self.resident: dict[str, float] = {}
        self.fails_on = ""
        self.ends_in_s = 0.0
        self.described: list[str] = []
        self.metrics = Counts()
        self.cpu_mb, self.idle_s = cpu_mb, idle_s

    def describe(self, of: LoadableModel) -> AsrInfo:
        self.described.append(of.name)
        if self.breaks.get(of.name) == "describe":
            raise EngineMissing("asr", "fake", "no config.json")
        return AsrInfo("fake", of.name, ("en",), 4, is_incremental=False)

    async def serve(self, of: LoadableModel) -> FakeServed:
        name = of.name
        breaks = "load" if self.fails_on in of.memory_mb else self.breaks.get(name, "")
        resident = self.resident.get(name, 0.0)
        served = FakeServed(name, breaks, resident, ends_in_s=self.ends_in_s)
        self.lives.append(served)
        return served

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Recognisers]:
        room = {"cpu": self.cpu_mb, "cuda:0": 1000.0}
        self.registry = ModelRegistry(
            room, LoopClock(), self.metrics, room_setting="asr.memory_mb", idle_s=self.idle_s
        )
        models = add_recognisers(self.registry, lambda: self.offers, self.describe, self.serve)
        async with self.registry.running():
            await models.default.load()
            yield models

    def run(self, scenario: Callable[[Recognisers], Awaitable[None]]) -> float:
        async def main() -> None:
            async with self.running() as models:
                await scenario(models)

        took_s = run_virtual(main())
        assert all(served.is_stopped for served in self.lives)
        return took_s

    @property
    def loaded(self) -> list[str]:
        return [served.name for served in self.lives]

    @property
    def alive(self) -> list[str]:
        return sorted(served.name for served in self.lives if not served.is_stopped)


async def say(models: Recognisers, name: str) -> str:
    model = models.get(name)
    assert model is not None
    return (await model.decode(ITEM, DecodePriority.FINAL)).text
