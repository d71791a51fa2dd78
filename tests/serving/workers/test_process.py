"""A real model in a real child process that is killed, hangs or is missing."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from core.errors import EngineCrashed, EngineError, EngineTimeout
from engines.base import AsrItem, AsrOptions, AsrResult
from engines.runtime.worker import protocol
from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from serving.scheduling.scheduler import Scheduler
from serving.workers import child_process, hang_detection
from serving.workers.process import ProcessWorker
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts, LoopClock
from tests.speech import say

pytestmark = pytest.mark.live

NANO = Path(__file__).parents[2] / "fixtures" / "whisper-nano"
OPTIONS = {"model": str(NANO), "cpu_threads": 1}
LIMIT_S = 60


class Stop(Exception):
    pass


def with_worker(
    scenario: Callable[[ProcessWorker], Awaitable[None]], name: str = "faster_whisper"
) -> Counts:
    metrics = Counts()

    async def main() -> None:
        worker = ProcessWorker("asr", name, OPTIONS, metrics)
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.run())
            await scenario(worker)
            raise Stop

    try:
        asyncio.run(main())
    except* Stop:
        pass
    return metrics


def clip(text: str) -> AsrItem:
    return AsrItem("item_1", say(text, tail_ms=300), is_final=True)


def test_a_killed_worker_loses_its_call_and_the_next_works() -> None:
    async def scenario(worker: ProcessWorker) -> None:
        info = await worker.ready()
        assert info.languages == ("en",)
        (before,) = await worker.decode([clip("turn on the kitchen lights")])
        assert before.text.lower().rstrip(".") == "turn on the kitchen lights"
        first_pid = worker.pid
        assert first_pid is not None
        os.kill(first_pid, signal.SIGSTOP)  # so that the request is with it when it dies
        async with asyncio.TaskGroup() as tasks:
            lost = tasks.create_task(catch(worker.decode([clip("set a timer")])))
            await asyncio.sleep(0)  # its first step sends the request
            assert worker._pending
            os.kill(first_pid, signal.SIGKILL)
        assert isinstance(lost.result(), EngineCrashed)
        (after,) = await worker.decode([clip("turn off the kitchen lights")])
        assert after.text.lower().rstrip(".") == "turn off the kitchen lights"
        assert worker.pid != first_pid

    metrics = with_worker(scenario)
    assert metrics.counts["earshot_worker_restarts"] == 1


def test_the_outcomes_of_short_windows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Counts()
    worker = ProcessWorker("asr", "faster_whisper", OPTIONS, metrics)

    async def ready_at_once(*_: object) -> None: ...

    async def answer(*_: object) -> list[AsrResult]:
        return [
            AsrResult("", 0.0, "en"),
            AsrResult("lights", 0.9, "en", short_windows=("too_long", "accepted")),
            AsrResult("lamp", 0.9, "en", short_windows=("accepted",)),
        ]

    monkeypatch.setattr(worker, "_wait_until_restarted", ready_at_once)
    monkeypatch.setattr(worker, "call", answer)
    asyncio.run(worker.decode([clip("lights")]))
    assert metrics.counts["earshot_asr_short_windows:too_long"] == 1
    assert metrics.counts["earshot_asr_short_windows:accepted"] == 2


def test_a_hung_worker_is_killed_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its calls are known to be short, a hang is found long before the limit of a first
    call."""
    monkeypatch.setattr(hang_detection, "LEAST_S", 2.0)

    async def scenario(worker: ProcessWorker) -> None:
        for _ in range(2):  # the first call is cold
            await worker.decode([clip("turn on the kitchen lights")])
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        assert isinstance(await catch(worker.decode([clip("hello")])), EngineTimeout)
        (after,) = await worker.decode([clip("turn on the kitchen lights")])
        assert "kitchen" in after.text.lower()

    assert with_worker(scenario).counts["earshot_worker_restarts"] == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_worker_fails_its_call_and_waiting_requests_are_served(
    how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hang_detection, "LEAST_S", 2.0)
    metrics = Counts()

    async def main() -> None:
        worker = ProcessWorker("asr", "faster_whisper", OPTIONS | {"max_batch": 1}, metrics)
        scheduler = Scheduler([worker], ASR_SCHEDULING, LoopClock(), metrics)
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(scheduler.run())
            await scheduler.ready()
            lights = clip("turn on the kitchen lights")
            for _ in range(2):  # the first call is cold
                await scheduler.submit(lights, DecodePriority.FINAL)
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGSTOP)  # so that the first request is with it
            carried = tasks.create_task(catch(scheduler.submit(lights, DecodePriority.FINAL)))
            waits = tasks.create_task(scheduler.submit(lights, DecodePriority.FINAL))
            for _ in range(10):  # some steps of the loop, none of which waits
                await asyncio.sleep(0)
            assert (scheduler.waiting, len(worker._pending)) == (1, 1)
            os.kill(worker.pid, how)
            lost = EngineTimeout if how is signal.SIGSTOP else EngineCrashed
            assert isinstance(await carried, lost)
            assert "kitchen" in (await waits).text.lower()
            serving.cancel()

    asyncio.run(main())
    assert metrics.counts["earshot_worker_restarts"] == 1
    assert metrics.counts["earshot_errors"] == 1


def test_a_request_times_out_if_the_worker_cannot_be_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(worker: ProcessWorker) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        worker = ProcessWorker("asr", "faster_whisper", OPTIONS, Counts())
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(worker.run())
            item = AsrItem("item_1", np.zeros(160, np.int16), is_final=True)
            assert isinstance(await catch(worker.decode([item])), EngineCrashed)
            running.cancel()

    monkeypatch.setattr(ProcessWorker, "_run_child", never)
    assert run_virtual(main()) == pytest.approx(child_process.LOAD_TIMEOUT_S)


def test_bad_audio_fails_one_call_not_the_worker() -> None:
    async def scenario(worker: ProcessWorker) -> None:
        await worker.ready()
        pid = worker.pid
        odd = AsrItem(
            "item_1", np.zeros((2, 10), np.int16), is_final=True, options=AsrOptions("xx")
        )
        outcome = await catch(worker.decode([odd]))
        assert outcome is None or isinstance(outcome, EngineError)
        (after,) = await worker.decode([clip("turn on the kitchen lights")])
        assert "kitchen" in after.text.lower()
        assert worker.pid == pid

    with_worker(scenario)


def test_a_batch_too_large_for_the_protocol_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(worker: ProcessWorker) -> None:
        await worker.ready()
        with monkeypatch.context() as patched:
            patched.setattr(protocol, "MAX_PAYLOAD_BYTES", 1000)
            outcome = await catch(worker.decode([clip("hello")]))
        assert "limit 1000" in str(outcome)
        (after,) = await worker.decode([clip("turn on the kitchen lights")])
        assert "kitchen" in after.text.lower()

    with_worker(scenario)


def test_a_worker_is_restarted_at_once_after_a_long_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lives_s = [100.0, 1.0, 1.0, 100.0, 1000.0]
    spans: list[tuple[float, float]] = []

    async def live(worker: ProcessWorker) -> None:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(lives_s[len(spans)])
        spans.append((began, asyncio.get_running_loop().time()))

    async def main() -> None:
        worker = ProcessWorker("asr", "faster_whisper", OPTIONS, Counts())
        with suppress(TimeoutError):
            async with asyncio.timeout(500):
                await worker.run()

    monkeypatch.setattr(ProcessWorker, "_run_child", live)
    run_virtual(main())
    pauses = [after[0] - before[1] for before, after in pairwise(spans)]
    assert pauses == pytest.approx([0.05, 0.2, 1.0])


def test_an_engine_that_cannot_load_gives_the_reason() -> None:
    async def main() -> None:
        options = {"model": "/nowhere/whisper"}
        worker = ProcessWorker("asr", "faster_whisper", options, Counts())
        async with asyncio.timeout(LIMIT_S):
            await worker.run()

    with pytest.raises(EngineError, match="/nowhere/whisper"):
        asyncio.run(main())


async def catch(call: Awaitable[object]) -> EngineError | None:
    try:
        await call
    except EngineError as exc:
        return exc
    return None
