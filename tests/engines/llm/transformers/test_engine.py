"""A real language model in its own process: it streams, stops within a token, and is restarted.

Our own test environment has no torch, so the process runs in vLLM's.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from core.conversation.usage import TokenUsage
from core.errors import (
    ContextLengthExceeded,
    EngineCrashed,
    EngineError,
    EngineTimeout,
    OverloadedError,
)
from core.ports import ToolSpec
from engines.base import LlmOptions, Message, TextDelta
from engines.llm.transformers import GGUF_LIBRARIES, worker_profile
from engines.llm.transformers.engine import TransformersLlm
from engines.llm.transformers.settings import Settings
from engines.llm.vllm.environment import python_of
from server.commands.engines.pip import pip
from serving.workers.engine_process import engine_process
from serving.workers.process_llm import ProcessLlm
from tests.engines.llm.openai.completions_server import collect_reply, reply_text
from tests.engines.llm.vllm.installation import ENVIRONMENT, installed, tiny_llama
from tests.pipeline.fakes import Counts
from tests.real_models import smollm2
from tests.tiny_llama import CONTEXT_TOKENS, SPOKEN

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("vllm")]

PYTHON = python_of(ENVIRONMENT)
PATIENCE_S = 120
TOOL = ToolSpec("light", "Turns a light on.", {"type": "object", "properties": {}})
HELLO = [Message("system", "Be brief and kind to everybody."), Message("user", "hello")]


@pytest.fixture(scope="module")
def tiny() -> Path:
    installed()
    return tiny_llama()


def in_process(folder: Path, **options: Any) -> ProcessLlm:
    given = {"path": str(folder), "threads": 1, **options}
    settings = Settings(**given)
    process = engine_process(
        "llm",
        "transformers",
        given,
        type(None),
        Counts(),
        worker_profile(settings),
        python=str(PYTHON),
    )
    return ProcessLlm(process, TransformersLlm(settings))


@asynccontextmanager
async def running(folder: Path, **options: Any) -> AsyncIterator[ProcessLlm]:
    llm = in_process(folder, **options)
    async with asyncio.timeout(PATIENCE_S), llm.running():
        await llm.warm("en", ())
        yield llm


def pid_of(llm: ProcessLlm) -> int | None:
    return llm._process.pid


def run(folder: Path, scenario: Callable[[ProcessLlm], Coroutine[Any, Any, None]]) -> None:
    """Runs the scenario in the kind of loop that the server has."""

    async def whole() -> None:
        async with running(folder) as llm:
            await scenario(llm)

    uvloop.run(whole())


def test_an_answer_streams_and_is_counted(tiny: Path) -> None:
    async def scenario(llm: ProcessLlm) -> None:
        assert llm.context_tokens == CONTEXT_TOKENS
        *texts, usage = await collect_reply(llm, HELLO, options=LlmOptions(max_output_tokens=20))
        assert len(texts) == 20  # one token each
        assert set(reply_text(texts)) <= set(SPOKEN)
        assert isinstance(usage, TokenUsage)
        assert usage.output_tokens == 20
        assert usage.input_tokens > len("Be brief and kind to everybody.hello")

    run(tiny, scenario)


def test_the_same_question_has_the_same_answer(tiny: Path) -> None:
    """This holds with cached values, without them, and during another answer."""

    async def scenario(llm: ProcessLlm) -> None:
        first = await collect_reply(llm, HELLO, options=twenty)
        longer = [*HELLO, Message("assistant", reply_text(first)), Message("user", "and now?")]
        again = await collect_reply(llm, longer, options=twenty)
        firsts.append(first)
        agains.append(again)
        assert reply_text(await collect_reply(llm, HELLO, options=twenty)) == reply_text(first)
        other = [Message("user", "something else, much longer than that " * 20)]
        async with asyncio.TaskGroup() as tasks:
            questions = (HELLO, other, longer)
            answers = [tasks.create_task(collect_reply(llm, q, options=twenty)) for q in questions]
        assert reply_text(answers[0].result()) == reply_text(first)
        assert reply_text(answers[2].result()) == reply_text(again)
        assert reply_text(answers[1].result()) != reply_text(first)

    async def in_new_process(llm: ProcessLlm) -> None:
        longer = [*HELLO, Message("assistant", reply_text(firsts[0])), Message("user", "and now?")]
        assert reply_text(await collect_reply(llm, longer, options=twenty)) == reply_text(agains[0])

    twenty = LlmOptions(max_output_tokens=20, temperature=0.0)
    firsts: list[list[Any]] = []
    agains: list[list[Any]] = []
    run(tiny, scenario)
    run(tiny, in_new_process)


def test_a_request_may_set_sampling_options(tiny: Path) -> None:
    """A model of random weights repeats itself, unless a penalty makes that unlikely."""

    async def scenario(llm: ProcessLlm) -> None:
        async def said(**wished: Any) -> str:
            options = LlmOptions(max_output_tokens=20, **wished)
            return reply_text(await collect_reply(llm, HELLO, options=options))

        greedy = await said(temperature=0.0)
        assert await said(temperature=2.0, top_p=0.01) == greedy, "one token is likely enough"
        varied = await said(temperature=0.0, repetition_penalty=2.0)
        assert len(set(varied)) > len(set(greedy))
        assert await said(default_temperature=0.0) == greedy

    run(tiny, scenario)


def test_cached_tokens_are_not_computed_again(tiny: Path) -> None:
    async def scenario() -> None:
        ten = LlmOptions(max_output_tokens=10)
        turns = [Message("user", "a question of some length")]
        async with running(tiny, at_once=1) as llm:
            for is_known in (False, True, True):
                *written, usage = await collect_reply(llm, turns, options=ten)
                assert isinstance(usage, TokenUsage)
                assert (usage.cached_tokens > 16) == is_known
                assert usage.cached_tokens < usage.input_tokens
                turns += [Message("assistant", reply_text(written)), Message("user", "more")]

    asyncio.run(scenario())


def cpu_s(llm: ProcessLlm) -> float:
    """Returns the processor time of the model's process."""
    times = psutil.Process(pid_of(llm)).cpu_times()
    return times.user + times.system


def test_closing_the_answer_stops_the_model_within_a_token(tiny: Path) -> None:
    async def scenario(llm: ProcessLlm) -> None:
        endless = LlmOptions(max_output_tokens=CONTEXT_TOKENS)
        for _ in range(8):  # more than there is room for, if abandoned ones went on
            reply = llm.reply(HELLO, (), language="en", options=endless)
            async with aclosing(reply) as deltas:
                assert isinstance(await anext(deltas), TextDelta)
        took_s = []
        for tokens in (1, 500):
            before_s = cpu_s(llm)
            await collect_reply(llm, HELLO, options=LlmOptions(max_output_tokens=tokens))
            took_s.append(cpu_s(llm) - before_s)
        assert took_s[0] < took_s[1] / 4  # no other answer was being generated

    run(tiny, scenario)


def test_one_answer_too_many_is_refused(tiny: Path) -> None:
    async def scenario() -> None:
        async with running(tiny, at_once=1, max_output_tokens=CONTEXT_TOKENS) as llm:
            async with aclosing(llm.reply(HELLO, (), language="en")) as deltas:
                await anext(deltas)
                with pytest.raises(OverloadedError, match="already generates 1 answers"):
                    await collect_reply(llm, HELLO)
            await collect_reply(llm, HELLO, options=LlmOptions(max_output_tokens=1))

    asyncio.run(scenario())


def test_one_answer_too_many_is_refused_while_the_model_loads(tiny: Path) -> None:
    async def scenario() -> None:
        one = LlmOptions(max_output_tokens=1)
        llm = in_process(tiny, at_once=1)
        async with asyncio.timeout(PATIENCE_S), llm.running():
            async with asyncio.TaskGroup() as tasks:
                first = tasks.create_task(collect_reply(llm, HELLO, options=one))
                await asyncio.sleep(0)  # the first has begun
                with pytest.raises(OverloadedError, match="already generates 1 answers"):
                    await collect_reply(llm, HELLO, options=one)
            assert reply_text(first.result())

    asyncio.run(scenario())


def test_a_prompt_that_is_too_long_is_refused_and_the_context_is_not_exceeded(tiny: Path) -> None:
    async def scenario() -> None:
        async with running(tiny, context_tokens=128) as llm:
            assert llm.context_tokens == 128
            with pytest.raises(
                ContextLengthExceeded, match=r"a prompt of \d+ tokens; the model takes 128"
            ):
                await collect_reply(llm, [Message("user", "x" * 200)])
            *_, usage = await collect_reply(llm, [Message("user", "x" * 100)])
            assert isinstance(usage, TokenUsage)
            assert usage.input_tokens + usage.output_tokens == 128

    asyncio.run(scenario())


def test_tools_are_part_of_the_templated_prompt(tiny: Path) -> None:
    async def scenario(llm: ProcessLlm) -> None:
        one = LlmOptions(max_output_tokens=1)
        *_, without = await collect_reply(llm, HELLO, options=one)
        *_, with_tools = await collect_reply(llm, HELLO, [TOOL], options=one)
        assert isinstance(without, TokenUsage)
        assert isinstance(with_tools, TokenUsage)
        assert with_tools.input_tokens > without.input_tokens + len(TOOL.description)

    run(tiny, scenario)


async def send_signal_during_answer(
    llm: ProcessLlm, pid: int, signal_number: signal.Signals
) -> None:
    """Sends the signal to the process during an answer."""
    endless = LlmOptions(max_output_tokens=CONTEXT_TOKENS)
    async with aclosing(llm.reply(HELLO, (), language="en", options=endless)) as deltas:
        async for _ in deltas:
            os.kill(pid, signal_number)


def test_a_killed_process_fails_its_answer_and_is_replaced(tiny: Path) -> None:
    async def scenario(llm: ProcessLlm) -> None:
        pid = pid_of(llm)
        assert pid
        with pytest.raises(EngineCrashed, match="died"):
            await send_signal_during_answer(llm, pid, signal.SIGKILL)
        await collect_reply(llm, HELLO, options=LlmOptions(max_output_tokens=1))
        assert pid_of(llm) not in (None, pid)

    run(tiny, scenario)


def test_a_hung_process_is_replaced(tiny: Path) -> None:
    async def scenario() -> None:
        async with running(tiny, token_timeout_s=0.5) as llm:
            pid = pid_of(llm)
            assert pid
            with pytest.raises(EngineTimeout, match=r"0\.5 s"):
                await send_signal_during_answer(llm, pid, signal.SIGSTOP)
            await collect_reply(llm, HELLO, options=LlmOptions(max_output_tokens=1))
            assert pid_of(llm) not in (None, pid)

    asyncio.run(scenario())


def test_a_folder_that_does_not_load_gives_the_reason_each_time(tiny: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tiny / name).read_bytes())

    async def scenario() -> None:
        llm = in_process(tmp_path)
        async with asyncio.timeout(PATIENCE_S):
            async with llm.running():
                with pytest.raises(EngineError, match="chat template"):
                    await llm.warm("en", ())
                with pytest.raises(EngineError, match="chat template"):
                    await collect_reply(llm)
                assert pid_of(llm) is None

    asyncio.run(scenario())


def test_closing_ends_the_process(tiny: Path) -> None:
    async def scenario() -> None:
        async with running(tiny) as llm:
            pid = pid_of(llm)
            assert pid
        assert pid_of(llm) is None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(scenario())


def test_a_gguf_file_answers_in_words() -> None:
    weights = smollm2()
    installed()
    pip(PYTHON, "install", "--no-deps", *GGUF_LIBRARIES, report_progress=print)

    async def scenario(llm: ProcessLlm) -> None:
        greedy = LlmOptions(temperature=0.0, max_output_tokens=24)
        asked = [Message("user", "What is the capital of France?")]
        *texts, usage = await collect_reply(llm, asked, options=greedy)
        assert "Paris" in reply_text(texts)
        assert isinstance(usage, TokenUsage)
        assert usage.input_tokens > len(asked[0].text.split())

    run(weights, scenario)
