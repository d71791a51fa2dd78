"""OpenAI's Python client, and plain requests, against a server with two small text models."""

from collections.abc import Iterator

import httpx2 as httpx
import numpy as np
import openai
import pytest
from openai import OpenAI

from tests.engines.embed.tiny_model import SIZE, ids_of, write_embedder, write_reranker
from tests.server.process import serving

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    write_embedder(folder / "models/tiny-embedder", matryoshka_dimensions=[4, 8])
    write_reranker(folder / "models/tiny-reranker")
    settings = {"EARSHOT_PATHS__MODELS_DIR": str(folder / "models")}
    with serving(folder, settings=settings) as server:
        yield server.url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[OpenAI]:
    with OpenAI(api_key="key", base_url=f"{url}/v1", max_retries=0) as client:
        yield client


def test_the_client_gets_vectors_of_texts_and_of_tokens(client: OpenAI) -> None:
    texts = ["cat", "dog sits on mat"]
    answer = client.embeddings.create(model="tiny-embedder", input=texts)  # base64 by default
    assert [one.index for one in answer.data] == [0, 1]
    assert (answer.model, answer.usage.prompt_tokens) == ("tiny-embedder", 9)
    hosted = client.embeddings.create(
        model="text-embedding-3-small", input=texts, encoding_format="float"
    )
    tokens = client.embeddings.create(
        model="default", input=[ids_of(text)[0] for text in texts], encoding_format="float"
    )
    for one, other, third in zip(answer.data, hosted.data, tokens.data, strict=True):
        assert len(one.embedding) == SIZE
        np.testing.assert_allclose(one.embedding, other.embedding, atol=1e-6)
        np.testing.assert_allclose(one.embedding, third.embedding, atol=1e-6)


def test_many_inputs_come_back_in_their_order(client: OpenAI) -> None:
    texts = ["cat", "dog sits", "mat on mat"] * 20
    answer = client.embeddings.create(model="default", input=texts)
    assert [one.index for one in answer.data] == list(range(60))
    np.testing.assert_allclose(answer.data[1].embedding, answer.data[58].embedding, atol=1e-6)


@pytest.mark.parametrize("long_at", [0, 17, 39])
def test_among_many_inputs_the_one_that_is_too_long_is_named(client: OpenAI, long_at: int) -> None:
    texts = ["cat", "dog sits on mat"] * 20
    texts[long_at] = "cat " * 30
    with pytest.raises(openai.BadRequestError, match=rf"input\[{long_at}\]': it has 32 tokens"):
        client.embeddings.create(model="default", input=texts)


def test_a_vector_is_cut_only_to_lengths_of_the_model(client: OpenAI) -> None:
    whole = client.embeddings.create(model="default", input="cat").data[0].embedding
    short = client.embeddings.create(model="default", input="cat", dimensions=4).data[0].embedding
    np.testing.assert_allclose(short, np.array(whole[:4]) / np.linalg.norm(whole[:4]), atol=1e-6)
    with pytest.raises(openai.BadRequestError, match="Allowed for tiny-embedder: 4, 8, 16"):
        client.embeddings.create(model="default", input="cat", dimensions=5)


WRONG = [
    ({"input": "cat " * 30}, "context_length_exceeded", "it has 32 tokens; .* at most 12"),
    ({"input": ["cat", "cat " * 30]}, "context_length_exceeded", r"input\[1\]"),
    ({"input": [4, 99]}, "invalid_value", "the token id 99 does not exist; .* 0 to 10"),
    ({"input": [["cat"]]}, "invalid_value", r"input\[0\]\[0\]"),
    ({"input": ["cat", 4]}, "invalid_value", "are mixed"),
    ({"input": []}, "empty_array", "empty array"),
    ({"input": [[]]}, "empty_string", "it is empty"),
    ({"input": ["cat"] * 2049}, "array_above_max_length", "at most 2048"),
    ({"input": "cat", "input_type": "song"}, "invalid_value", "Allowed for tiny-embedder: query"),
    ({"input": "cat", "encoding_format": "hex"}, "invalid_value", "encoding_format"),
    ({}, "missing_required_parameter", "'input'"),
]


@pytest.mark.parametrize(("body", "code", "message"), WRONG)
def test_a_wrong_request_is_told_what_is_wrong(
    client: OpenAI, body: dict[str, object], code: str, message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        client.post("/embeddings", body={"model": "default", **body}, cast_to=object)
    assert caught.value.code == code


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="Allowed: tiny-embedder"):
        client.embeddings.create(model="nobody", input="cat")


def test_documents_are_sorted_by_their_score(url: str) -> None:
    body = {"model": "tiny-reranker", "query": "cat", "documents": ["dog", {"text": "cat sits"}]}
    answer = httpx.post(f"{url}/v1/rerank", json=body).json()
    scores = [one["relevance_score"] for one in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert {one["document"]["text"] for one in answer["results"]} == {"dog", "cat sits"}
    newer = httpx.post(f"{url}/v2/rerank", json=body).json()
    assert newer["results"] == answer["results"]
    best = httpx.post(
        f"{url}/v1/rerank", json={**body, "top_n": 1, "return_documents": False}
    ).json()
    assert best["results"] == [
        {"index": answer["results"][0]["index"], "relevance_score": scores[0]}
    ]
    wrong = httpx.post(f"{url}/v1/rerank", json={**body, "documents": ["cat " * 30]}).json()
    assert wrong["error"]["code"] == "context_length_exceeded"


def test_each_of_many_documents_gets_its_own_score(url: str) -> None:
    texts = ["cat", "dog sits", "mat on mat sits on mat", "dog"]
    body = {"model": "tiny-reranker", "query": "cat", "documents": texts * 15}
    answer = httpx.post(f"{url}/v1/rerank", json=body).json()
    alone = {
        text: httpx.post(f"{url}/v1/rerank", json={**body, "documents": [text]}).json()["results"]
        for text in texts
    }
    assert sorted(one["index"] for one in answer["results"]) == list(range(60))
    for one in answer["results"]:
        (expected,) = alone[texts[one["index"] % 4]]
        assert one["relevance_score"] == pytest.approx(expected["relevance_score"], abs=1e-6)


def test_both_models_are_listed_with_their_kind(url: str) -> None:
    cards = httpx.get(f"{url}/v1/models").json()["data"]
    kinds = {card["id"]: card["kind"] for card in cards}
    assert kinds["tiny-embedder"] == "embed"
    assert kinds["tiny-reranker"] == "rerank"
    unloaded = httpx.post(f"{url}/v1/models/tiny-embedder/unload")
    assert (unloaded.status_code, unloaded.json()["state"]) == (200, "unloaded")
