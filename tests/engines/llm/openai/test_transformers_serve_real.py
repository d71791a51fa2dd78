"""The engine `openai` with a server other than vLLM: `transformers serve`, with the same model.

It has no metrics, so the test measures its work by processor time.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import psutil
import pytest

from engines.base import LlmOptions, Message, TextDelta
from engines.llm import openai
from engines.llm.openai.engine import OpenAiLlm
from engines.llm.vllm.environment import python_of
from engines.runtime.external_server.program import ServerProgram, http_health, reserve_port
from server.commands.engines.pip import pip
from tests.engines.llm.vllm.installation import installed, tiny_llama

pytestmark = [pytest.mark.real, pytest.mark.late]

START_S = 600
HOST = "127.0.0.1"
HELLO = Message("user", "hello")
SHORT, LONG = LlmOptions(max_output_tokens=300), LlmOptions(max_output_tokens=30_000)
DEFAULT_CONTEXT_TOKENS = 4 * 30_000
"The answer may use a quarter of it; with less, fewer tokens would be requested."
PATIENCE: Mapping[str, Any] = {
    "connect_timeout_s": 30,
    "first_token_timeout_s": 120,
    "token_timeout_s": 120,
}
QUIET_S, LOOK_S, MORE_S = 60, 0.5, 0.2

SERVE = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
"Does what its command does; the command's script names the folder of its own environment."


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[OpenAiLlm, psutil.Process]]:
    python = python_of(installed())
    # vLLM needs the rest of the extra `serving`. Without dependencies, because torch is pinned.
    pip(python, "install", "--no-deps", "accelerate", report_progress=print)
    model = str(tiny_llama())
    with reserve_port("llm", "transformers", HOST, 0) as port:
        where = ("--host", HOST, "--port", str(port), "--device", "cpu")
        url = f"http://{HOST}:{port}"
        program = ServerProgram(
            "llm",
            "transformers",
            [str(python), "-c", SERVE, "serve", model, *where, "--dtype", "float32"],
            {"HF_HUB_OFFLINE": "1"},
            start_timeout_s=START_S,
        )
        settings = openai.Settings(
            base_url=f"{url}/v1", model=model, context_tokens=DEFAULT_CONTEXT_TOKENS, **PATIENCE
        )
        async with http_health(f"{url}/health") as probe:
            supervisor = program.supervisor(probe)
            async with supervisor.running(), aclosing(openai.create(settings)) as llm:
                assert supervisor.pid is not None
                yield llm, psutil.Process(supervisor.pid)


def test_an_answer_streams_and_stops_after_a_disconnect() -> None:
    async def scenario() -> None:
        async with serving() as (llm, server):
            await cost_s(llm, server)  # the first answer is cold
            short_s = await cost_s(llm, server)

            before_s = await quiet(server)
            async with aclosing(llm.reply([HELLO], (), language="en", options=LONG)) as long:
                for _ in range(5):
                    assert isinstance(await anext(long), TextDelta)
                begun_s = cpu_s(server)
                while cpu_s(server) < begun_s + MORE_S:  # noqa: ASYNC110 - it goes on writing
                    await asyncio.sleep(LOOK_S / 10)
            # All of it would cost a hundred times the short one.
            assert await quiet(server) - before_s < 30 * short_s

    asyncio.run(scenario())


async def cost_s(llm: OpenAiLlm, server: psutil.Process) -> float:
    """Returns the processor time of a short answer."""
    before_s = await quiet(server)
    answer = llm.reply([HELLO], (), language="en", options=SHORT)
    assert len([part async for part in answer if isinstance(part, TextDelta)]) > 30
    return await quiet(server) - before_s


def cpu_s(server: psutil.Process) -> float:
    times = server.cpu_times()
    return times.user + times.system


async def quiet(server: psutil.Process) -> float:
    """Waits until the server is idle; returns its processor time by then."""
    async with asyncio.timeout(QUIET_S):
        while True:
            before_s = cpu_s(server)
            await asyncio.sleep(LOOK_S)
            if (after_s := cpu_s(server)) - before_s < LOOK_S / 10:
                return after_s
