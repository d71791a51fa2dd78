"""The supervisor of a server: its start, errors while it is down, restarts and their limit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from core.errors import EngineCrashed, EngineError, EngineTimeout
from engines.runtime.external_server import supervisor
from engines.runtime.external_server.process import ServerProcess
from engines.runtime.external_server.supervisor import (
    BACKOFF_S,
    MAX_FAILURES,
    MAX_MISSED_PROBES,
    ServerSupervisor,
    SupervisedServer,
)
from tests.loop import run_virtual


@dataclass
class Script(ServerProcess):
    """A server that is up `starts_s` after each start, and then runs for `lives_s`."""

    starts_s: float = 10.0
    lives_s: float = 1e9
    hangs: bool = False
    begun_s: list[float] = field(default_factory=list)
    ended: int = 0
    pid: int = 0

    @asynccontextmanager
    async def start(self) -> AsyncIterator["Script"]:
        self.begun_s.append(now())
        self.pid = len(self.begun_s)
        try:
            yield self
        finally:
            self.ended += 1

    async def wait(self) -> str:
        await asyncio.sleep(self.begun_s[-1] + self.starts_s + self.lives_s - now())
        return "it was ended by signal 9"

    async def probe(self) -> bool:
        return not self.hangs and now() >= self.begun_s[-1] + self.starts_s

    def supervised(self, start_timeout_s: float = 60) -> ServerSupervisor:
        return ServerSupervisor(
            SupervisedServer(
                "tts",
                "parrot",
                self.start,
                self.probe,
                lambda: "out of memory",
                start_timeout_s,
            )
        )


def now() -> float:
    return asyncio.get_running_loop().time()


def test_the_body_runs_while_the_server_is_up() -> None:
    async def scenario() -> None:
        script = Script(starts_s=10)
        one = script.supervised()
        with pytest.raises(EngineCrashed, match=r"tts engine 'parrot': .*has not been started"):
            one.check()
        async with one.running():
            assert 10 <= now() < 11
            one.check()
            assert (one.state, one.pid) == ("up", 1)
        assert script.ended == 1
        with pytest.raises(EngineCrashed, match="it was stopped"):
            one.check()

    run_virtual(scenario())


def test_a_server_that_fails_at_its_first_start_is_not_restarted() -> None:
    async def scenario(script: Script, kind: type[EngineError], says: str) -> None:
        one = script.supervised()
        with pytest.raises(kind, match=says):
            async with one.running():
                pytest.fail("it is up")
        with pytest.raises(EngineCrashed, match="it is not started again"):
            one.check()
        assert (len(script.begun_s), script.ended) == (1, 1)

    run_virtual(
        scenario(Script(starts_s=5, lives_s=-2), EngineCrashed, "signal 9 while it.*out of memory")
    )
    run_virtual(scenario(Script(starts_s=61), EngineTimeout, "did not come up in 60 s"))


def test_a_dead_server_is_reported_at_once_and_restarted() -> None:
    async def scenario() -> None:
        script = Script(starts_s=10, lives_s=100)
        one = script.supervised()
        async with one.running():
            assert await one.wait_for_change() == "restarting"
            assert now() == 110
            with pytest.raises(EngineCrashed, match=r"signal 9.*; it is being restarted"):
                one.check()
            assert now() == 110
            await one.wait_until_ready()
            assert one.restarts == 1
            assert script.begun_s[1] == 110 + BACKOFF_S[0]

    run_virtual(scenario())


def test_a_hung_server_is_ended_and_restarted() -> None:
    async def scenario() -> None:
        script = Script(starts_s=10)
        one = script.supervised()
        async with one.running():
            hung_s = now()
            script.hangs = True
            assert await one.wait_for_change() == "restarting"
            assert now() - hung_s <= (MAX_MISSED_PROBES + 1) * supervisor.WATCH_S
            script.hangs = False
            await one.wait_until_ready()
            assert (script.ended, script.pid) == (1, 2)

    run_virtual(scenario())


def test_rapid_failures_are_retried_with_growing_pauses_up_to_a_limit() -> None:
    async def scenario() -> None:
        script = Script(starts_s=10, lives_s=1)
        one = script.supervised()
        async with one.running():
            while one.state != "given up":
                await one.wait_for_change()
            says = r"5 times in a row.*out of memory.*not started again"
            with pytest.raises(EngineCrashed, match=says):
                await one.wait_until_ready()
            assert len(script.begun_s) == MAX_FAILURES
            pauses = [later - earlier - 11 for earlier, later in pairwise(script.begun_s)]
            assert pauses == pytest.approx(BACKOFF_S)
            await asyncio.sleep(10_000)
            assert len(script.begun_s) == MAX_FAILURES

    run_virtual(scenario())


def test_failures_far_apart_do_not_add_up() -> None:
    async def scenario() -> None:
        script = Script(starts_s=10, lives_s=supervisor.STABLE_AFTER_S + 10)
        one = script.supervised()
        async with one.running():
            for _ in range(2 * MAX_FAILURES):
                await one.wait_until_ready()
                await one.wait_for_change()
            assert one.restarts == 2 * MAX_FAILURES - 1

    run_virtual(scenario())
