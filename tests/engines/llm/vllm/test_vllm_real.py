"""A real vLLM, from its installation to its end: a tiny Llama with random weights, on processors.

The tests share one server; each waits until it is up and idle. None measures time, because vLLM's
processes spin, and on two cores they keep ours waiting for seconds. They compare vLLM's own
counters.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from core.conversation.usage import TokenUsage
from core.errors import EngineCrashed, EngineError, EngineMissing, RequestError
from core.ports import ToolSpec
from engines.base import LlmOptions, Message, TextDelta
from engines.llm import vllm
from engines.llm.openai.engine import CONTEXT_PER_ANSWER
from engines.llm.server_llm import ServerLlm
from engines.runtime.external_server.installation import MARKER
from tests.engines.llm.interrupted_session import ANSWER_TOKENS, interrupt_answer
from tests.engines.llm.vllm.installation import (
    CONTEXT_TOKENS,
    ENVIRONMENT,
    earshot,
    installed,
    tiny_llama,
    used_by_one_test,
)

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.xdist_group("vllm")]

START_S = 600

PATIENCE_S = 120
"The timeout of steps that take milliseconds on an idle machine."

LONG = LlmOptions(max_output_tokens=ANSWER_TOKENS)
"""It takes more than a minute on any machine that runs these tests. The model never ends by itself,
so an answer of fewer tokens was aborted."""

RUNNING, WRITTEN = "vllm:num_requests_running", "vllm:generation_tokens_total"

HELLO = Message("user", "hello")
RULES = Message("system", "You are the voice of a house. " * 20)
"600 tokens; the prefix cache counts in blocks of 128."


LIGHT = ToolSpec("light", "Turns the light on.", {"type": "object", "properties": {}})
"vLLM refuses a request with tools unless it was started for them."


PATIENCE = {
    "connect_timeout_s": 30,
    "first_token_timeout_s": PATIENCE_S,
    "token_timeout_s": PATIENCE_S,
}
"The timeouts for a busy processor, on which the first requests also compile their kernels."


class Served:
    """The engine with its server, in a loop that runs while a test needs it."""

    def __init__(self, runner: asyncio.Runner, engine: ServerLlm) -> None:
        self.runner, self.engine = runner, engine

    async def metric(self, name: str) -> float:
        text = await asyncio.to_thread(read, f"{self.engine.url}/metrics")
        found = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
        assert found, name
        return sum(float(line.rpartition(" ")[2]) for line in found)

    async def until_running(self, count: int) -> None:
        """Waits for this number of running requests; vLLM counts them between two steps."""
        async with asyncio.timeout(PATIENCE_S):
            while await self.metric(RUNNING) != count:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.1)

    @asynccontextmanager
    async def aborted(self) -> AsyncIterator[None]:
        """Asserts that one long answer is begun in the body and aborted before its end."""
        assert (
            ANSWER_TOKENS <= CONTEXT_TOKENS // CONTEXT_PER_ANSWER
        )  # else fewer would be requested
        await self.until_ready()
        await self.until_running(0)
        before = await self.metric(WRITTEN)
        yield
        await self.until_running(0)
        assert 0 < await self.metric(WRITTEN) - before < ANSWER_TOKENS

    async def answer(self, *messages: Message, tokens: int = 40) -> tuple[str, TokenUsage]:
        options = LlmOptions(max_output_tokens=tokens)
        parts = [p async for p in self.engine.reply(messages, (), language="en", options=options)]
        (usage,) = (part for part in parts if isinstance(part, TokenUsage))
        return "".join(part.text for part in parts if isinstance(part, TextDelta)), usage

    async def until_ready(self) -> None:
        async with asyncio.timeout(START_S):
            await self.engine.ready()


def read(url: str) -> str:
    with urlopen(url, timeout=PATIENCE_S) as response:
        text: str = response.read().decode()
        return text


def engine_of(model: Path) -> ServerLlm:
    overrides = json.dumps({"max_position_embeddings": CONTEXT_TOKENS})
    return vllm.create(
        vllm.Settings(
            model=str(model),
            environment=str(ENVIRONMENT),
            max_model_len=CONTEXT_TOKENS,
            cpu_cache_gb=1,
            tool_parser="hermes",
            # The cache needs room for the whole context of each sequence that it could run at once.
            extra_args=("--hf-overrides", overrides, "--max-num-seqs", "4"),
            start_timeout_s=START_S,
            request=PATIENCE,
        )
    )


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    engine = engine_of(tiny_llama())
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


def test_our_command_installs_vllm_once() -> None:
    installed()
    marker = ENVIRONMENT / MARKER
    made = marker.stat().st_mtime_ns
    assert "already exists" in earshot("engines", "install", "vllm", "--cpu")
    assert marker.stat().st_mtime_ns == made
    listed = earshot("engines", "list").split()
    assert listed[:2] == ["vllm", "installed"]
    assert "cpu" in listed
    assert str(ENVIRONMENT) in listed


def test_an_incomplete_environment_is_not_used() -> None:
    model, marker = tiny_llama(), ENVIRONMENT / MARKER
    with used_by_one_test():
        hidden = marker.rename(marker.with_suffix(".hidden"))
        try:
            with pytest.raises(EngineMissing, match="earshot engines install vllm"):
                engine_of(model)
            assert "partly installed" in earshot("engines", "list")
        finally:
            hidden.rename(marker)


def test_an_answer_streams(served: Served) -> None:
    """A hundred pieces arrive while the answer is being generated."""

    async def scenario() -> None:
        answer = served.engine.reply([HELLO], [LIGHT], language="en", options=LONG)
        async with served.aborted(), aclosing(answer) as parts:
            for _ in range(100):
                assert isinstance(await anext(parts), TextDelta)
            assert await served.metric(RUNNING) == 1

    served.runner.run(scenario())
    assert served.engine.context_tokens == CONTEXT_TOKENS


def test_a_forwarded_request_is_aborted_and_held_to_a_schema(served: Served) -> None:
    asked = {"messages": [{"role": "user", "content": "hello"}]}
    long = {**asked, "stream": True, "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
    schema = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}
    form = {
        "type": "json_schema",
        "json_schema": {"name": "light", "schema": {**schema, "additionalProperties": False}},
    }

    async def scenario() -> None:
        async with served.aborted():
            texts = served.engine.forward("/chat/completions", long, ["hello"])
            for _ in range(20):
                assert json.loads(await anext(texts))["object"] == "chat.completion.chunk"
            assert await served.metric(RUNNING) == 1
            await texts.aclose()
        for more in ({"n": 2, "seed": 1, "logprobs": True}, {"response_format": form}):
            body = {**asked, **more, "max_tokens": 100}
            (whole,) = [text async for text in served.engine.forward("/chat/completions", body, [])]
            choices = json.loads(whole)["choices"]
            assert len(choices) == body.get("n", 1)
            if "response_format" in body and choices[0]["finish_reason"] == "stop":
                assert isinstance(json.loads(choices[0]["message"]["content"])["on"], bool)
        too_long = {**asked, "max_tokens": 2 * CONTEXT_TOKENS}
        with pytest.raises(RequestError, match=str(CONTEXT_TOKENS)):
            await anext(served.engine.forward("/chat/completions", too_long, []))

    served.runner.run(scenario())


def test_the_second_turn_uses_the_cache_of_the_first(served: Served) -> None:
    async def scenario() -> None:
        await served.until_ready()
        said, usage = await served.answer(RULES, HELLO)
        assert usage.output_tokens == 40
        before = await served.metric("vllm:prefix_cache_hits_total")
        turn = [RULES, HELLO, Message("assistant", said), Message("user", "go on")]
        _, usage = await served.answer(*turn)
        hits = await served.metric("vllm:prefix_cache_hits_total") - before
        assert 512 <= hits <= usage.input_tokens

    served.runner.run(scenario())


@pytest.mark.alone  # while other tests compute, vLLM's first token can take minutes
def test_closing_the_answer_aborts_it(served: Served) -> None:
    async def scenario() -> None:
        answer = served.engine.reply([HELLO], (), language="en", options=LONG)
        async with served.aborted(), aclosing(answer) as parts:
            for _ in range(5):
                assert isinstance(await anext(parts), TextDelta)
            assert await served.metric(RUNNING) == 1

    served.runner.run(scenario())


@pytest.mark.alone  # while other tests compute, vLLM's first token can take minutes
def test_an_interruption_aborts_the_answer(served: Served) -> None:
    """A whole session is interrupted and goes on until vLLM has noticed."""

    async def scenario() -> None:
        async with served.aborted():
            await interrupt_answer(
                served.engine,
                lambda: served.until_running(0),
                began=lambda: served.until_running(1),
            )

    served.runner.run(scenario())


@pytest.mark.parametrize("part", ["server", "engine core"])
def test_a_killed_server_fails_its_answers_and_is_restarted(served: Served, part: str) -> None:
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
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(EngineError, match="vllm") as lost:
                await drained(answer)
            while engine.is_ready:
                await engine.changed()
        if part == "server":
            assert isinstance(lost.value, EngineCrashed)
        with pytest.raises(EngineCrashed, match="is being restarted"):
            await served.answer(HELLO)
        assert not engine.is_ready  # the error came at once, not when the server was back
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


def test_stopping_leaves_no_process() -> None:
    engine = engine_of(tiny_llama())

    async def scenario() -> list[psutil.Process]:
        async with engine.running():
            assert engine.pid is not None
            server = psutil.Process(engine.pid)
            family = [server, *server.parents()[:1], *server.children(recursive=True)]
            assert len(family) >= 4  # the guard, the server, its engine, its worker
            async with aclosing(engine.reply([HELLO], (), language="en", options=LONG)) as parts:
                await anext(parts)
        return family

    left = [one for one in asyncio.run(scenario()) if one.is_running()]
    assert not left
    assert engine.pid is None


def test_a_failed_start_is_reported_with_the_last_output() -> None:
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
