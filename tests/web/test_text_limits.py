"""Texts beyond a model's context, and a model whose files contradict each other, at each door for
text: an error in the door's own shape."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.engines.embed.tiny_model import write_embedder, write_reranker
from tests.server.process import TIMEOUT_S, Running, serving, workers

pytestmark = pytest.mark.live

EMBEDDER, RERANKER, BROKEN = "tiny-embedder", "tiny-reranker", "broken-embedder"
LONG = "cat " * 30

Body = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("server")
    models = folder / "models"
    write_embedder(models / EMBEDDER)
    write_reranker(models / RERANKER)
    write_embedder(models / BROKEN)
    config = models / BROKEN / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text("utf-8")), "vocab_size": 10}))
    settings = {"EARSHOT_PATHS__MODELS_DIR": str(models)}
    with serving(folder, settings=settings) as server:
        server.url = server.url.rstrip("/")
        yield server


def kserve(text: str) -> Body:
    """The body of a request for the vector of one text."""
    return {"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": [text]}]}


def answer(server: Running, path: str, body: Body) -> tuple[int, str]:
    """The status, and the error's text in the shape of the door."""
    response = httpx.post(f"{server.url}{path}", json=body, timeout=TIMEOUT_S)
    error = response.json().get("error", "")
    return response.status_code, error if isinstance(error, str) else error["message"]


@pytest.mark.parametrize(
    ("path", "body", "tokens"),
    [
        ("/v1/embeddings", {"model": EMBEDDER, "input": LONG}, 32),
        ("/v1/embeddings", {"model": EMBEDDER, "input": [[6] * 13]}, 13),
        ("/v1/rerank", {"model": RERANKER, "query": "cat", "documents": ["cat", LONG]}, 34),
        ("/embedding", {"model": EMBEDDER, "content": LONG}, 32),
        ("/reranking", {"model": RERANKER, "query": LONG, "documents": ["cat"]}, 34),
        ("/api/embed", {"model": EMBEDDER, "input": LONG, "truncate": False}, 32),
        (f"/v2/models/{EMBEDDER}/infer", kserve(LONG), 32),
    ],
)
def test_a_text_beyond_the_context_is_told_both_numbers(
    server: Running, path: str, body: Body, tokens: int
) -> None:
    status, why = answer(server, path, body)
    assert (status, f"it has {tokens} tokens" in why, "at most 12" in why) == (400, True, True), why


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"/v1/models/{BROKEN}/load", {}),
        ("/v1/embeddings", {"model": BROKEN, "input": "cat"}),
        ("/embedding", {"model": BROKEN, "content": "cat"}),
        ("/api/embed", {"model": BROKEN, "input": "cat"}),
        (f"/v2/models/{BROKEN}/infer", kserve("cat")),
    ],
)
def test_a_model_whose_files_contradict_each_other_is_not_loaded(
    server: Running, path: str, body: Body
) -> None:
    good = httpx.post(f"{server.url}/v1/models/{EMBEDDER}/load", timeout=TIMEOUT_S)
    assert good.status_code == 200, good.text
    running = {worker.pid for worker in workers(server)}
    status, why = answer(server, path, body)
    assert status == 502, why
    assert "tokenizer.json has 11 tokens, but config.json says vocab_size 10" in why
    assert str(Path.cwd()) not in why
    cards = httpx.get(f"{server.url}/v1/models", timeout=TIMEOUT_S).json()["data"]
    assert next(card["state"] for card in cards if card["id"] == BROKEN) != "loaded"
    assert {worker.pid for worker in workers(server)} == running
    works = httpx.post(
        f"{server.url}/v1/embeddings", json={"model": EMBEDDER, "input": "cat"}, timeout=TIMEOUT_S
    )
    assert works.status_code == 200
