"""Random load in virtual time: every request ends once, urgent ones first, and no state is left."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from core.errors import EngineCrashed, EngineError, EngineTimeout, OverloadedError
from engines.base import AsrInfo, AsrItem, AsrResult
from serving.asr.scheduling import DecodePriority
from tests.serving.scheduling.fakes import AsrScheduler, item, scheduled

CALLERS = 300
UTTERANCES = 40


@dataclass
class Shaky:
    """A worker with state like an incremental engine; its calls vary, fail, and end the worker."""

    chance: random.Random
    scheduler: AsrScheduler | None = None
    kept: set[str] = field(default_factory=set)
    calls: int = 0
    _is_back: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._is_back.set()

    @property
    def is_ready(self) -> bool:
        return self._is_back.is_set()

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def ready(self) -> AsrInfo:
        await self._is_back.wait()
        return AsrInfo("shaky", "shaky", ("en",), 4, is_incremental=True)

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        self.calls += 1
        self._check_order(items)
        for one in items:
            (self.kept.discard if one.is_final else self.kept.add)(one.utterance)
        await asyncio.sleep(self.chance.uniform(0.005, 0.02) * len(items))
        if self.chance.random() < 0.05:
            self.kept.clear()
            asyncio.get_running_loop().call_later(self.chance.uniform(0, 0.5), self._is_back.set)
            self._is_back.clear()
            kind = self.chance.choice((EngineCrashed, EngineTimeout))
            raise kind("asr", "shaky", "died")
        return [AsrResult(one.utterance, 1.0, "en") for one in items]

    def forget(self, utterance: str) -> None:
        self.kept.discard(utterance)

    def _check_order(self, items: Sequence[AsrItem]) -> None:
        """Asserts that no request that could be taken here is more urgent than those taken."""
        assert self.scheduler is not None
        taken = [priority_of(one) for one in items]
        assert taken == sorted(taken)
        assert DecodePriority.BATCH not in taken or taken[0] is DecodePriority.BATCH
        for request in self.scheduler._queue:
            bound = self.scheduler._affinity.worker_of(request.sequence)
            if bound is None and not request.is_late(asyncio.get_running_loop().time()):
                assert request.priority >= taken[0]


def priority_of(one: AsrItem) -> DecodePriority:
    return DecodePriority[one.utterance.partition(" ")[0]]


async def call(scheduler: AsrScheduler, chance: random.Random) -> str:
    """Sends one request at a random time, deadline and timeout; returns how it ended."""
    await asyncio.sleep(chance.uniform(0, 3))
    priority = chance.choice(list(DecodePriority))
    # an utterance's name contains its priority, so that a worker can check the order
    name = f"{priority.name} {chance.randrange(UTTERANCES)}"
    is_final = priority in (DecodePriority.FINAL, DecodePriority.BATCH)
    deadline_s = chance.choice((None, None, 0.0, 0.05))
    answer = scheduler.submit(item(name, is_final=is_final), priority, deadline_s=deadline_s)
    try:
        async with asyncio.timeout(chance.choice((None, None, 0.0, 0.02, 0.1))):
            result = await answer
    except TimeoutError:
        return "cancelled"
    except (EngineError, OverloadedError) as error:
        return "lost" if isinstance(error, EngineError) else "refused"
    return "result" if result.text == name else "another's result"


@pytest.mark.many
@pytest.mark.parametrize("seed", range(12))
def test_every_request_ends_once_under_random_load(seed: int) -> None:
    chance = random.Random(seed)
    workers = [Shaky(chance) for _ in range(1 + seed % 3)]
    ends: Counter[str] = Counter()

    async def scenario(scheduler: AsrScheduler, tasks: asyncio.TaskGroup) -> None:
        for worker in workers:
            worker.scheduler = scheduler
        ends.update(await asyncio.gather(*(call(scheduler, chance) for _ in range(CALLERS))))
        await asyncio.sleep(5)  # calls cancelled in flight end, workers come back
        assert (scheduler.waiting, len(scheduler._calls)) == (0, 0)
        for name in [f"{p.name} {n}" for p in DecodePriority for n in range(UTTERANCES)]:
            scheduler.forget(name)  # as the owner of an utterance without a final does
        assert scheduler.open_sequences == 0
        assert [worker.kept for worker in workers] == [set()] * len(workers)

    seconds, _ = scheduled(workers, scenario)
    assert ends.total() == CALLERS
    assert ends["another's result"] == 0
    assert min(ends["result"], ends["cancelled"], ends["lost"], ends["refused"]) > 0
    assert seconds < 60
