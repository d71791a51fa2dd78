"""A language model in a worker process: it answers like one in the gateway, and is restarted."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from core.conversation.usage import TokenUsage
from core.errors import ContextLengthExceeded, EngineCrashed, EngineError, OverloadedError
from core.ports import ToolSpec
from engines.base import CallDelta, ConcurrencyLimitedLlm, LlmOptions, Message, TextDelta
from engines.registry import load, worker_profile
from engines.runtime.worker.payloads import LlmDelta
from serving.workers.engine_process import engine_process
from serving.workers.process_llm import ProcessLlm
from tests.pipeline.fakes import Counts
from tests.serving.workers.odd_llm import CALL, LIMITS

pytestmark = pytest.mark.live

ODD = "tests.serving.workers.odd_llm"
LIMIT_S = 30
TOOL = ToolSpec("light", "Turns a light on.", {"type": "object", "properties": {}})


def with_model(scenario: Callable[[ProcessLlm], Awaitable[None]], **options: Any) -> Counts:
    metrics = Counts()

    async def main() -> None:
        profile = worker_profile("llm", ODD, options)
        assert profile is not None
        process = engine_process("llm", ODD, options, type(None), metrics, profile)
        llm = ProcessLlm(process, load("llm", ODD, options))
        async with asyncio.timeout(LIMIT_S), llm.running():
            await scenario(llm)

    asyncio.run(main())
    return metrics


async def answer(llm: ProcessLlm, text: str) -> list[LlmDelta]:
    options = LlmOptions(temperature=0.5)
    reply = llm.reply([Message("user", text)], [TOOL], language="de", options=options)
    async with aclosing(reply) as deltas:
        return [delta async for delta in deltas]


def test_an_answer_has_every_kind_of_delta() -> None:
    async def scenario(llm: ProcessLlm) -> None:
        assert (llm.name, llm.languages, llm.context_tokens) == ("odd", ("en", "de"), 512)
        assert isinstance(llm, ConcurrencyLimitedLlm)
        assert llm.max_concurrency == 2
        assert await answer(llm, "everything") == [
            TextDelta("de light 0.5"),
            CallDelta("call_1", "light", '{"on"'),
            CALL,
            LIMITS,
            TokenUsage(12, 3, 8),
        ]

    with_model(scenario)


def test_abandoned_answers_are_cancelled_and_one_too_many_is_refused() -> None:
    async def scenario(llm: ProcessLlm) -> None:
        endless = [Message("user", "endless")]
        async with (
            aclosing(llm.reply(endless, (), language="en")) as one,
            aclosing(llm.reply(endless, (), language="en")) as two,
        ):
            assert [await anext(one), await anext(two)] == [TextDelta("one")] * 2
            with pytest.raises(OverloadedError, match="already generates 2 answers") as full:
                await answer(llm, "hello")
            assert (full.value.code, full.value.retry_after_s) == ("engine_busy", 2)
        assert await answer(llm, "hello") == [TextDelta("2 were cancelled"), TokenUsage(12, 3, 8)]

    with_model(scenario)


def test_a_prompt_that_is_too_long_keeps_its_error() -> None:
    async def scenario(llm: ProcessLlm) -> None:
        for _ in range(4):
            with pytest.raises(ContextLengthExceeded, match="a prompt of 600 tokens"):
                await answer(llm, "too long")

    assert "earshot_worker_restarts" not in with_model(scenario).counts


def test_a_killed_model_loses_its_answers_and_loads_again() -> None:
    async def scenario(llm: ProcessLlm) -> None:
        await llm.warm("en", ())
        pid = llm._process.pid
        assert pid is not None
        async with aclosing(llm.reply([Message("user", "endless")], (), language="en")) as deltas:
            await anext(deltas)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(EngineCrashed, match="its worker process died"):
                await anext(deltas)
        assert (await answer(llm, "hello"))[0] == TextDelta("0 were cancelled")
        assert llm._process.pid not in (None, pid)

    assert with_model(scenario).counts["earshot_worker_restarts"] == 1


def test_a_model_that_does_not_load_gives_the_reason_each_time() -> None:
    async def scenario(llm: ProcessLlm) -> None:
        for _ in range(2):
            with pytest.raises(EngineError, match="no chat template"):
                await llm.warm("en", ())
        with pytest.raises(EngineError, match="no chat template"):
            await answer(llm, "hello")

    with_model(scenario, has_weights=False)
