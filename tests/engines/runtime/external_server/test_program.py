"""A model server program is started, checked and restarted."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from core.errors import EngineCrashed
from engines.runtime.external_server.program import ServerProgram, http_health, reserve_port

pytestmark = pytest.mark.live

FAKE = Path(__file__).with_name("fake_model_server.py")
HOST = "127.0.0.1"
LIMIT_S = 30


def test_an_engine_of_another_kind_runs_and_restarts_its_server() -> None:
    async def scenario() -> None:
        with reserve_port("tts", "parrot", HOST, 0) as port:
            program = ServerProgram(
                "tts", "parrot", [sys.executable, str(FAKE), str(port)], grace_s=0.5
            )
            async with asyncio.timeout(LIMIT_S), http_health(f"http://{HOST}:{port}/") as probe:
                supervisor = program.supervisor(probe)
                async with supervisor.running():
                    assert await probe()
                    first = supervisor.pid
                    assert first is not None
                    os.kill(first, signal.SIGKILL)
                    assert await supervisor.wait_for_change() == "restarting"
                    with pytest.raises(EngineCrashed, match=r"tts engine 'parrot': .*signal 9"):
                        supervisor.check()
                    await supervisor.wait_until_ready()
                    assert await probe()
                    assert supervisor.pid not in (None, first)
                assert not await probe()

    asyncio.run(scenario())


def test_a_program_that_ends_at_once_gives_the_reason_without_its_secret() -> None:
    words = [sys.executable, "-c", "import os, sys; sys.exit('Error: ' + os.environ['KEY'])"]
    program = ServerProgram("tts", "parrot", words, {"KEY": "s3cret"}, "s3cret")

    async def never() -> bool:
        return False

    async def scenario() -> None:
        async with asyncio.timeout(LIMIT_S), program.supervisor(never).running():
            pytest.fail("it is up")

    with pytest.raises(EngineCrashed, match=r"status 1 while it started.*Error: \*\*\*") as caught:
        asyncio.run(scenario())
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(program)
