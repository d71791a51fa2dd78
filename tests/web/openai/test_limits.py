"""Limits of the REST API: exact numbers of refusals, time limits that end the work, and floods of
one capability that leave the others."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import pytest

from core.errors import EngineTimeout, OverloadedError
from tests.clients.scripted_server import answering
from tests.engines.embed.tiny_model import write_embedder, write_reranker
from tests.loop import run_virtual
from web.openai.limits import RequestLimit

MAX_REQUESTS, CALLERS, CHAT_TIMEOUT_S = 3, 20, 1.0


def test_the_time_limit_cancels_the_work_and_frees_its_place() -> None:
    async def scene() -> None:
        limit = RequestLimit("embed", "embeddings", 1, 5.0)
        cancelled: list[bool] = []

        async def work() -> None:
            async with limit.take():
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    cancelled.append(True)
                    raise

        async def fail() -> None:
            async with limit.take():
                raise TimeoutError  # of something else

        with pytest.raises(EngineTimeout, match="no answer within 5 s"):
            await work()
        assert cancelled == [True]
        with pytest.raises(TimeoutError):
            await fail()

    assert run_virtual(scene()) == pytest.approx(5.0)


def test_a_draining_limit_refuses_with_another_code_than_a_full_one() -> None:
    async def scene() -> None:
        limit = RequestLimit("embed", "embeddings", 1, 5.0)
        async with limit.take(), asyncio.TaskGroup() as tasks:
            with pytest.raises(OverloadedError) as full:
                await limit.take().__aenter__()
            drained = tasks.create_task(limit.drain())
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError) as draining:
                await limit.take().__aenter__()
            drained.cancel()
        assert (full.value.code, draining.value.code) == ("too_many_requests", "draining")

    run_virtual(scene())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    write_embedder(folder / "models/tiny-embedder")
    write_reranker(folder / "models/tiny-reranker")
    settings = {
        "EARSHOT_PATHS__MODELS_DIR": str(folder / "models"),
        "EARSHOT_LIMITS__EMBEDDINGS": str(MAX_REQUESTS),
        "EARSHOT_LIMITS__CHAT": "1",
        "EARSHOT_LIMITS__CHAT_TIMEOUT_S": str(CHAT_TIMEOUT_S),
    }
    with answering(folder, **settings) as server:
        yield server.url


def ask(url: str, text: str, **fields: Any) -> httpx.Response:
    """Asks the scripted language model."""
    body = {"model": "default", "messages": [{"role": "user", "content": text}], **fields}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)


@pytest.mark.live
def test_a_flood_of_embeddings_is_refused_exactly_and_leaves_the_others(url: str) -> None:
    """The first request loads the model, which takes far longer than all others need to arrive."""

    def embed(_: int) -> httpx.Response:
        body = {"model": "default", "input": "cat"}
        return httpx.post(f"{url}/v1/embeddings", json=body, timeout=60)

    with ThreadPoolExecutor(CALLERS) as pool:
        flood = list(pool.map(embed, range(CALLERS)))
    statuses = Counter(response.status_code for response in flood)
    assert statuses == {200: MAX_REQUESTS, 429: CALLERS - MAX_REQUESTS}
    refused = [response for response in flood if response.status_code == 429]
    assert {response.headers["Retry-After"] for response in refused} == {"2"}
    assert {response.json()["error"]["code"] for response in refused} == {"too_many_requests"}
    assert embed(0).status_code == 200


@pytest.mark.live
def test_a_chat_that_takes_too_long_gets_504_and_leaves_its_place(url: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(ask, url, "never end")
        while ask(url, "count").status_code == 200:  # until the other request has the only place
            if stuck.done():  # it was refused, because the short request had the place
                stuck = pool.submit(ask, url, "never end")
        body = {"model": "default", "query": "cat", "documents": ["dog", "cat"]}
        assert httpx.post(f"{url}/v1/rerank", json=body, timeout=60).status_code == 200
        ended = stuck.result()
    assert (ended.status_code, ended.json()["error"]["code"]) == (504, "engine_timeout")
    assert ask(url, "count").status_code == 200
