"""Scenarios that voices, language models and models for texts must pass, wherever they run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from core.errors import OverloadedError, RequestError
from engines.base import Message, TextDelta, Tts
from engines.base.text import EmbedItem, EmbedResult
from engines.runtime.worker.payloads import LlmDelta
from serving.text.model import TextPriority, TextWorkerPool
from serving.workers.process_llm import ProcessLlm
from serving.workers.process_tts import ProcessTts
from tests.serving.workers.odd_voice import SENTENCE

VOICE, LLM = "tests.serving.workers.odd_voice", "tests.serving.workers.odd_llm"
"Engines of a third party, which run in the same process as what replaces them or in another one."


async def _given(text: str) -> AsyncIterator[str]:
    yield text


async def spoken(tts: Tts, text: str) -> list[int]:
    """Returns the value of each frame."""
    async with aclosing(tts.speak(_given(text), language="en")) as frames:
        return [int(frame.pcm[0]) async for frame in frames]


async def becomes(count: Callable[[], Awaitable[int]], wanted: int) -> None:
    """Asks until the count is as wanted: a cancellation needs some time on the cluster."""
    while await count() != wanted:
        pass


async def a_voice_speaks_and_keeps_its_errors(tts: ProcessTts) -> None:
    assert tts.info.name == "odd"
    async with asyncio.TaskGroup() as tasks:
        clauses = [tasks.create_task(spoken(tts, SENTENCE)) for _ in range(4)]
    assert [clause.result() for clause in clauses] == [[4, 2, 3, 5]] * 4
    with pytest.raises(OverloadedError, match="no room") as full:
        await spoken(tts, "full")
    assert (full.value.retry_after_s, full.value.code) == (7, "engine_busy")
    assert await spoken(tts, SENTENCE) == [4, 2, 3, 5]


async def an_abandoned_clause_frees_the_voice(tts: ProcessTts) -> None:
    for _ in range(3):
        async with aclosing(tts.speak(_given("endless"), language="en")) as frames:
            await anext(frames)

    async def cancelled() -> int:
        return (await spoken(tts, "how many were cancelled"))[0]

    await becomes(cancelled, 3)


async def a_deleted_voice_is_forgotten(tts: ProcessTts) -> None:
    async def condition() -> bytes:
        return b"77"

    async def no_condition() -> bytes:
        raise RequestError("deleted", code="deleted")

    speech = tts.speak_clause("whose voice", language="en", voice="eve", condition=condition)
    async with aclosing(speech) as frames:
        assert [int(frame.pcm[0]) async for frame in frames] == [77]

    async def held() -> int:
        return (await spoken(tts, "how many voices"))[0]

    assert await held() == 1
    tts.forget_voice("eve")
    await becomes(held, 0)
    speech = tts.speak_clause("whose voice", language="en", voice="eve", condition=no_condition)
    with pytest.raises(RequestError, match="deleted"):
        async with aclosing(speech) as frames:
            await anext(frames)


async def answer(llm: ProcessLlm, text: str) -> list[LlmDelta]:
    async with aclosing(llm.reply([Message("user", text)], (), language="en")) as deltas:
        return [delta async for delta in deltas]


async def an_abandoned_answer_frees_the_model(llm: ProcessLlm) -> None:
    await llm.warm("en", ())
    endless = [Message("user", "endless")]
    async with (
        aclosing(llm.reply(endless, (), language="en")) as one,
        aclosing(llm.reply(endless, (), language="en")) as two,
    ):
        assert [await anext(one), await anext(two)] == [TextDelta("one")] * 2
        with pytest.raises(OverloadedError, match="already generates 2 answers"):
            await answer(llm, "hello")

    async def cancelled() -> int:
        delta = (await answer(llm, "hello"))[0]
        assert isinstance(delta, TextDelta)
        return int(delta.text.split()[0])

    await becomes(cancelled, 2)


async def texts_get_their_vectors(pool: TextWorkerPool[EmbedItem, EmbedResult]) -> None:
    items = [EmbedItem((text,)) for text in ("cat sits", "dog on mat", "cat sits")]
    async with asyncio.TaskGroup() as tasks:
        results = [tasks.create_task(pool.submit(item, TextPriority.SINGLE)) for item in items]
    first, second, third = (task.result().vectors for task in results)
    assert first == third != second
