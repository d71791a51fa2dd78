"""A real vLLM, from its installation to its end: a tiny Llama with random weights, on processors.

The tests share one server and go in this order; the later ones kill it.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from urllib.request import urlopen

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from core.errors import EngineCrashed, EngineError, EngineMissing
from core.events import Usage
from core.ports import ToolSpec
from engines.base import LlmOptions, Message, TextDelta
from engines.llm import vllm
from engines.llm.vllm.engine import Vllm
from engines.llm.vllm.environment import MARKER
from tests.engines.spoken_over import spoken_over
from tests.engines.vllm_home import CONTEXT_TOKENS, ENVIRONMENT, earshot, installed, tiny_llama

pytestmark = pytest.mark.real

START_S = 300
LONG = LlmOptions(max_output_tokens=30_000)
"Half a minute and more on any machine that runs these tests."

HELLO = Message("user", "hello")
RULES = Message("system", "You are the voice of a house. " * 20)
"600 tokens; the prefix cache counts in blocks of 128."


LIGHT = ToolSpec("light", "Turns the light on.", {"type": "object", "properties": {}})
"vLLM refuses a request with tools unless it was started for them."


PATIENCE = {"first_token_timeout_s": 60, "token_timeout_s": 30}
"On a busy processor, where the first requests also compile what they run."


class Served:
    """The engine with its server, in a loop that runs while a test needs it."""

    def __init__(self, runner: asyncio.Runner, engine: Vllm) -> None:
        self.runner, self.engine = runner, engine

    async def metric(self, name: str) -> float:
        text = await asyncio.to_thread(read, f"{self.engine.url}/metrics")
        samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
        found = [sample.value for sample in samples if sample.name == name]
        assert found, name
        return sum(found)

    async def answer(self, *messages: Message, tokens: int = 40) -> tuple[str, Usage]:
        options = LlmOptions(max_output_tokens=tokens)
        parts = [p async for p in self.engine.reply(messages, (), language="en", options=options)]
        (usage,) = (part for part in parts if isinstance(part, Usage))
        return "".join(part.text for part in parts if isinstance(part, TextDelta)), usage

    async def until_ready(self) -> None:
        async with asyncio.timeout(START_S):
            await self.engine.ready()


def read(url: str) -> str:
    with urlopen(url, timeout=10) as response:
        text: str = response.read().decode()
        return text


def engine_of() -> Vllm:
    overrides = json.dumps({"max_position_embeddings": CONTEXT_TOKENS})
    return vllm.create(
        vllm.Settings(
            model=str(tiny_llama()),
            environment=str(ENVIRONMENT),
            max_model_len=CONTEXT_TOKENS,
            cpu_cache_gb=1,
            tool_parser="hermes",
            extra_args=("--hf-overrides", overrides),
            start_timeout_s=START_S,
            request=PATIENCE,
        )
    )


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    installed()
    engine = engine_of()
    with asyncio.Runner() as runner:

        async def begin() -> tuple[asyncio.Task[None], asyncio.Event]:
            up, over = asyncio.Event(), asyncio.Event()

            async def hold() -> None:
                async with engine.running():
                    up.set()
                    await over.wait()

            holding = asyncio.create_task(hold())
            waiting = asyncio.create_task(up.wait())
            await asyncio.wait({holding, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if holding.done():
                await holding
            return holding, over

        holding, over = runner.run(begin())

        async def end() -> None:
            over.set()
            await holding

        yield Served(runner, engine)
        runner.run(end())


def test_our_command_installs_it_once() -> None:
    installed()
    began_s = time.monotonic()
    assert "is there already" in earshot("engines", "install", "vllm", "--cpu")
    assert time.monotonic() - began_s < 20
    listed = earshot("engines", "list").split()
    assert listed[:2] == ["vllm", "installed"]
    assert "cpu" in listed
    assert str(ENVIRONMENT) in listed


def test_half_an_environment_is_none() -> None:
    installed()
    marker = ENVIRONMENT / MARKER
    hidden = marker.rename(marker.with_suffix(".hidden"))
    try:
        with pytest.raises(EngineMissing, match="earshot engines install vllm"):
            engine_of()
        assert "half installed" in earshot("engines", "list")
    finally:
        hidden.rename(marker)


def test_it_streams(served: Served) -> None:
    async def scenario() -> None:
        options = LlmOptions(max_output_tokens=3000)
        began_s = time.monotonic()
        answer = served.engine.reply([HELLO], [LIGHT], language="en", options=options)
        took_s = [
            time.monotonic() - began_s async for part in answer if isinstance(part, TextDelta)
        ]
        assert len(took_s) > 100
        assert took_s[0] < took_s[-1] / 2  # not all at once, at the end

    served.runner.run(scenario())
    assert served.engine.context_tokens == CONTEXT_TOKENS


def test_the_second_turn_finds_the_first_one_cached(served: Served) -> None:
    async def scenario() -> None:
        said, usage = await served.answer(RULES, HELLO)
        assert usage.output_tokens == 40
        before = await served.metric("vllm:prefix_cache_hits_total")
        turn = [RULES, HELLO, Message("assistant", said), Message("user", "go on")]
        _, usage = await served.answer(*turn)
        hits = await served.metric("vllm:prefix_cache_hits_total") - before
        assert 512 <= hits <= usage.input_tokens

    served.runner.run(scenario())


def test_closing_the_answer_aborts_it(served: Served) -> None:
    async def scenario() -> None:
        made = await served.metric("vllm:generation_tokens_total")
        async with aclosing(served.engine.reply([HELLO], (), language="en", options=LONG)) as parts:
            for _ in range(5):
                assert isinstance(await anext(parts), TextDelta)
            assert await served.metric("vllm:num_requests_running") == 1
        closed_s = time.monotonic()
        while await served.metric("vllm:num_requests_running"):
            assert time.monotonic() - closed_s < 1
            await asyncio.sleep(0.02)
        assert await served.metric("vllm:generation_tokens_total") - made < 10_000

    served.runner.run(scenario())


def test_speech_over_an_answer_aborts_it(served: Served) -> None:
    """By a whole session, which goes on; the answer would take half a minute."""

    async def told(count: int) -> None:
        """vLLM counts between two steps, and this is asked between two as well."""
        began_s = time.monotonic()
        while await served.metric("vllm:num_requests_running") != count:
            assert time.monotonic() - began_s < 2
            await asyncio.sleep(0.02)

    async def scenario() -> None:
        made = await served.metric("vllm:generation_tokens_total")
        await spoken_over(served.engine, lambda: told(0), began=lambda: told(1))
        assert await served.metric("vllm:generation_tokens_total") - made < 10_000

    served.runner.run(scenario())


@pytest.mark.parametrize("part", ["server", "engine core"])
def test_a_killed_server_loses_its_turns_and_comes_back(served: Served, part: str) -> None:
    engine = served.engine

    async def scenario() -> None:
        await served.until_ready()
        assert engine.pid is not None
        server = psutil.Process(engine.pid)
        family = [server, *server.children(recursive=True)]
        victim = server if part == "server" else core_of(server)
        answer = engine.reply([HELLO], (), language="en", options=LONG)
        await anext(answer)
        os.kill(victim.pid, signal.SIGKILL)
        async with asyncio.timeout(30):
            with pytest.raises(EngineError, match="vllm") as lost:
                await drained(answer)
            while engine.is_ready:
                await engine.changed()
        if part == "server":
            assert isinstance(lost.value, EngineCrashed)
        asked_s = time.monotonic()
        with pytest.raises(EngineCrashed, match="is being restarted"):
            await served.answer(HELLO)
        assert time.monotonic() - asked_s < 0.1
        await served.until_ready()
        assert not [one for one in family if one.is_running()]
        assert (await served.answer(HELLO))[1].output_tokens == 40

    served.runner.run(scenario())


async def drained(answer: AsyncGenerator[object, None]) -> None:
    async for _ in answer:
        pass


def core_of(server: psutil.Process) -> psutil.Process:
    (core,) = (c for c in server.children() if "EngineCore" in " ".join(c.cmdline()))
    return core


def test_the_end_leaves_no_process() -> None:
    installed()
    engine = engine_of()

    async def scenario() -> list[psutil.Process]:
        async with engine.running():
            assert engine.pid is not None
            server = psutil.Process(engine.pid)
            family = [server, *server.parents()[:1], *server.children(recursive=True)]
            assert len(family) >= 4  # the leash, the server, its engine, its worker
            async with aclosing(engine.reply([HELLO], (), language="en", options=LONG)) as parts:
                await anext(parts)
        return family

    left = [one for one in asyncio.run(scenario()) if one.is_running()]
    assert not left
    assert engine.pid is None


def test_what_cannot_be_served_is_said_with_its_last_words() -> None:
    installed()
    broken = vllm.create(
        vllm.Settings(
            model=str(tiny_llama()),
            environment=str(ENVIRONMENT),
            extra_args=("--no-such-option",),
            start_timeout_s=START_S,
        )
    )

    async def scenario() -> None:
        async with broken.running():
            pytest.fail("it came up")

    with pytest.raises(EngineCrashed, match="no-such-option"):
        asyncio.run(scenario())
