"""The engine `openai` with a server that is not vLLM: `transformers serve`, with the same model.

It has no metrics: whether it computes is seen by its processor time.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

import aiohttp
import psutil
import pytest

from engines.base import LlmOptions, Message, TextDelta
from engines.llm import openai
from engines.llm.openai.engine import OpenAiLlm
from engines.llm.vllm.environment import python_of
from engines.llm.vllm.log import ServerLog
from engines.llm.vllm.port import reserved
from engines.llm.vllm.process import ServerProcess, started
from engines.llm.vllm.supervisor import Server, Supervisor
from server.pip import pip
from tests.engines.vllm_home import installed, tiny_llama

pytestmark = pytest.mark.real

START_S = 300
HELLO = Message("user", "hello")
LONG = LlmOptions(max_output_tokens=30_000)

SERVE = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
"As its command does; that script names the folder that the environment was made in."


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[OpenAiLlm, psutil.Process]]:
    python = python_of(installed())
    # All else of its extra `serving` is there for vLLM. Without what it needs: torch is pinned.
    pip(python, "install", "--no-deps", "accelerate", tell=print)
    model = str(tiny_llama())
    log = ServerLog("transformers", "", time.monotonic)
    with reserved("127.0.0.1", 0, "transformers") as port:
        where = ("--host", "127.0.0.1", "--port", str(port), "--device", "cpu")
        command = [str(python), "-c", SERVE, "serve", model, *where, "--dtype", "float32"]
        url = f"http://127.0.0.1:{port}"
        variables = {"HF_HUB_OFFLINE": "1"}

        async def is_well() -> bool:
            try:
                async with aiohttp.request("GET", f"{url}/health") as response:
                    return response.status == 200
            except aiohttp.ClientError:
                return False

        def start() -> AbstractAsyncContextManager[ServerProcess]:
            return started(command, variables, log)

        keeper = Supervisor(Server("transformers", start, is_well, log.told, START_S))
        settings = openai.Settings(
            base_url=f"{url}/v1", model=model, context_tokens=2048, first_token_timeout_s=60
        )
        async with keeper.running(), aclosing(openai.create(settings)) as llm:
            assert keeper.pid is not None
            yield llm, psutil.Process(keeper.pid)


def test_it_streams_and_stops_when_nobody_listens() -> None:
    async def scenario() -> None:
        async with serving() as (llm, server):
            began_s = time.monotonic()
            short = LlmOptions(max_output_tokens=300)
            answer = llm.reply([HELLO], (), language="en", options=short)
            took_s = await times(answer, began_s)
            assert len(took_s) > 30
            assert took_s[0] < took_s[-1] / 2

            async with aclosing(llm.reply([HELLO], (), language="en", options=LONG)) as parts:
                for _ in range(5):
                    assert isinstance(await anext(parts), TextDelta)
                assert await busy_s(server, 1.0) > 0.3
            await asyncio.sleep(1.0)
            assert await busy_s(server, 1.0) < 0.1

    asyncio.run(scenario())


async def times(answer: AsyncGenerator[object, None], began_s: float) -> list[float]:
    return [time.monotonic() - began_s async for part in answer if isinstance(part, TextDelta)]


async def busy_s(server: psutil.Process, seconds: float) -> float:
    """Processor time that it took meanwhile."""
    before = server.cpu_times()
    await asyncio.sleep(seconds)
    after = server.cpu_times()
    return after.user + after.system - before.user - before.system
