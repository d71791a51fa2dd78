"""Lanes: requests join a busy worker, and a cancelled request leaves it at once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from engines.base import AsrInfo, AsrItem, AsrResult
from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts, LoopClock
from tests.serving.scheduling.fakes import AsrScheduler, item, settle

LONG_S, SHORT_S = 1.0, 0.1


@dataclass
class Joining:
    """A worker that decodes everything concurrently; a name that begins with `long` takes
    longer."""

    running: set[str] = field(default_factory=set)
    most: int = 0
    cancelled: list[str] = field(default_factory=list)
    runs: int = 0

    is_ready = True

    async def run(self) -> None:
        self.runs += 1
        await asyncio.Event().wait()

    async def ready(self) -> AsrInfo:
        return AsrInfo("joining", "joining", ("en",), 8, is_incremental=False)

    async def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        (one,) = items
        self.running.add(one.utterance)
        self.most = max(self.most, len(self.running))
        try:
            await asyncio.sleep(LONG_S if one.utterance.startswith("long") else SHORT_S)
        except asyncio.CancelledError:
            self.cancelled.append(one.utterance)
            raise
        finally:
            self.running.discard(one.utterance)
        return [AsrResult(one.utterance, 1.0, "en")]

    def forget(self, utterance: str) -> None:
        """Does nothing, because no state is kept."""


class _Over(Exception):
    pass


def scheduled(worker: Joining, count: int, scenario: object) -> float:
    async def main() -> None:
        scheduler = AsrScheduler([worker], ASR_SCHEDULING, LoopClock(), Counts(), lanes=count)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(scheduler.run())
                await scheduler.ready()
                await scenario(scheduler)  # type: ignore[operator]
                raise _Over
        except* _Over:
            pass

    return run_virtual(main())


def test_a_short_request_does_not_wait_for_a_long_one() -> None:
    worker = Joining()

    async def scenario(scheduler: AsrScheduler) -> None:
        async with asyncio.TaskGroup() as tasks:
            long = tasks.create_task(scheduler.submit(item("long"), DecodePriority.FINAL))
            await asyncio.sleep(LONG_S / 2)
            result = await scheduler.submit(item("short"), DecodePriority.FINAL)
            assert result.text == "short"
            assert not long.done()

    assert scheduled(worker, 4, scenario) == pytest.approx(LONG_S, abs=0.01)
    assert (worker.most, worker.runs) == (2, 1)


def test_no_more_requests_run_than_there_are_lanes() -> None:
    worker = Joining()

    async def scenario(scheduler: AsrScheduler) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(6):
                tasks.create_task(scheduler.submit(item(f"utt_{number}"), DecodePriority.FINAL))

    assert scheduled(worker, 3, scenario) == pytest.approx(2 * SHORT_S, abs=0.01)
    assert worker.most == 3


def test_a_cancelled_request_frees_its_lane() -> None:
    worker = Joining()

    async def scenario(scheduler: AsrScheduler) -> None:
        async with asyncio.TaskGroup() as tasks:
            gone = [
                tasks.create_task(scheduler.submit(item(name), DecodePriority.FINAL))
                for name in ("long 1", "long 2")
            ]
            await settle()
            gone[0].cancel()
            result = await scheduler.submit(item("short"), DecodePriority.FINAL)
            assert result.text == "short"
            assert worker.cancelled == ["long 1"]
            gone[1].cancel()

    assert scheduled(worker, 2, scenario) == pytest.approx(SHORT_S, abs=0.01)
    assert worker.cancelled == ["long 1", "long 2"]
