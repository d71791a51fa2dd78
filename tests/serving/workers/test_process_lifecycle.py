"""Failures of a child process while it loads, is idle or works, with a third party's engine."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from core.errors import EngineCrashed, EngineError, EngineRefused
from engines.base import AsrItem, AsrOptions
from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from serving.scheduling.scheduler import Scheduler
from serving.workers import child_process
from serving.workers.process import ProcessWorker
from tests.pipeline.fakes import Counts, LoopClock

pytestmark = pytest.mark.live

ODD = "tests.engines.runtime.worker.faulty_engine"
LIMIT_S = 30


def item(prompt: str = "") -> AsrItem:
    return AsrItem("item_1", np.zeros(160, np.int16), True, AsrOptions(prompt=prompt))


def test_a_child_that_dies_while_loading_fails_the_first_load() -> None:
    """It is not restarted without end while a request waits."""

    async def main() -> None:
        worker = ProcessWorker("asr", ODD, {"dies_loading": True}, Counts())
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.run())
            await worker.ready()

    with pytest.raises(BaseExceptionGroup) as caught:
        asyncio.run(main())
    assert caught.group_contains(EngineCrashed, match=r"while it loaded \(exit status 3\)")


def test_a_model_that_its_library_refuses_is_not_tried_again(tmp_path: Path) -> None:
    """Neither at the first load nor when the files were replaced under a running server."""
    refusing = tmp_path / "refusing"

    async def main() -> None:
        worker = ProcessWorker("asr", ODD, {"is_refused": str(refusing)}, Counts())
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.run())
            await worker.ready()
            refusing.touch()
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup) as later:
        asyncio.run(main())
    assert later.group_contains(EngineRefused, match="refuses the model's files")
    with pytest.raises(BaseExceptionGroup) as first:
        asyncio.run(main())
    assert first.group_contains(EngineRefused, match="refuses the model's files")


def test_an_idle_child_that_hangs_is_replaced_before_the_next_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child_process, "SILENCE_S", 1.0)

    class Restarts(Counts):
        seen = asyncio.Event()

        def count(self, name: str, value: float = 1, /, **labels: str) -> None:
            self.seen.set()

    async def main() -> None:
        metrics = Restarts()
        worker = ProcessWorker("asr", ODD, {}, metrics, called="parrot")
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(worker.run())
            await worker.ready()
            first_pid = worker.pid
            assert first_pid is not None
            await asyncio.sleep(4 * child_process.SILENCE_S)  # it answers the pings
            assert worker.pid == first_pid
            os.kill(first_pid, signal.SIGSTOP)
            await metrics.seen.wait()
            (result,) = await worker.decode([item("yes")])
            assert (result.text, worker.pid == first_pid) == ("yes", False)
            running.cancel()

    asyncio.run(main())
    assert "asr.parrot[0]: asr engine 'parrot': hung with nothing to do" in caplog.text


def test_a_child_that_ends_just_before_it_is_killed_is_not_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error of the kill once took the place of the cancellation, and the server never ended."""
    kills: list[int] = []

    async def wait(process: asyncio.subprocess.Process) -> int:
        await until_killed.wait()
        return await ends(process)

    def kill(process: asyncio.subprocess.Process) -> None:
        kills.append(process.pid)
        until_killed.set()
        raise ProcessLookupError

    ends, until_killed = asyncio.subprocess.Process.wait, asyncio.Event()
    monkeypatch.setattr(child_process, "EXIT_GRACE_S", 0.01)
    monkeypatch.setattr(asyncio.subprocess.Process, "wait", wait)
    monkeypatch.setattr(asyncio.subprocess.Process, "kill", kill)

    async def main() -> None:
        worker = ProcessWorker("asr", ODD, {}, Counts())
        async with asyncio.timeout(LIMIT_S):
            running = asyncio.create_task(worker.run())
            await worker.ready()
            pid = worker.pid
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert kills == [pid]
        assert worker.pid is None

    asyncio.run(main())


def test_requests_fail_while_weights_are_missing_after_a_crash(
    tmp_path: Path,
) -> None:
    weights = tmp_path / "model.bin"
    weights.touch()

    async def main() -> None:
        worker = ProcessWorker("asr", ODD, {"weights": str(weights)}, Counts())
        scheduler = Scheduler([worker], ASR_SCHEDULING, LoopClock(), Counts())
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(scheduler.run())
            await scheduler.ready()
            weights.unlink()
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            with pytest.raises(EngineCrashed):  # it was with the child, or came just after
                await scheduler.submit(item(), DecodePriority.FINAL)
            for _ in range(2):
                with pytest.raises(EngineCrashed, match="does not load again: no weights in") as no:
                    await scheduler.submit(item(), DecodePriority.FINAL)
                assert str(no.value).count("asr engine") == 1
            weights.touch()
            while True:
                try:
                    await scheduler.submit(item(), DecodePriority.FINAL)
                except EngineCrashed:
                    continue  # a child that was started before the weights were back
                break
            serving.cancel()

    asyncio.run(main())


def test_a_worker_that_only_fails_is_replaced() -> None:
    """On a GPU the first failure makes all later calls of a process fail."""

    async def main() -> None:
        worker = ProcessWorker("asr", ODD, {}, Counts())
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(worker.run())
            await worker.ready()
            first_pid = worker.pid

            async def hear(*prompts: str) -> None:
                for prompt in prompts:
                    with suppress(EngineError):
                        await worker.decode([item(prompt)])

            await hear("fail", "fail", "yes", "fail", "fail")
            assert worker.pid == first_pid
            await hear("fail", "yes")
            assert worker.pid not in (None, first_pid)
            running.cancel()

    asyncio.run(main())


def test_a_result_that_cannot_be_encoded_fails_only_its_call() -> None:
    async def main() -> None:
        worker = ProcessWorker("asr", ODD, {}, Counts())
        scheduler = Scheduler([worker], ASR_SCHEDULING, LoopClock(), Counts())
        async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(scheduler.run())
            await scheduler.ready()
            with pytest.raises(EngineError, match="cannot be sent"):
                await scheduler.submit(item("\ud800"), DecodePriority.FINAL)
            assert (await scheduler.submit(item("yes"), DecodePriority.FINAL)).text == "yes"
            serving.cancel()

    asyncio.run(main())
