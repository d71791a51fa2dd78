"""Models are downloaded, used and removed with the requests of Ollama's clients."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

from tests.engines.embed.tiny_model import POSITIONS, SIZE, write_embedder, write_reranker
from tests.server.models.cli import environment_of
from tests.server.models.fake_hub import FakeHub
from tests.server.models.fake_hub import serving as serving_hub
from tests.server.process import TIMEOUT_S, serving

pytestmark = pytest.mark.live

EMBEDDER = "sentence-transformers/all-MiniLM-L6-v2"
LONG = "cat " * (2 * POSITIONS)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHub]:
    folder = tmp_path_factory.mktemp("hub") / "embedder"
    write_embedder(folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    content = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    with serving_hub(FakeHub({EMBEDDER: content, "someone/other": dict(content)})) as fake:
        yield fake


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, hub: FakeHub) -> Iterator[httpx.Client]:
    folder: Path = tmp_path_factory.mktemp("server")
    write_reranker(folder / "models/judge")
    network = environment_of(folder, hub.url)
    settings = {name: network[name] for name in ("HF_ENDPOINT", "NO_PROXY", "PIP_NO_INDEX")}
    settings["EARSHOT_PATHS__MODELS_DIR"] = str(folder / "models")
    with (
        serving(folder, settings=settings) as server,
        httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client,
    ):
        yield client


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def _names(client: httpx.Client, path: str) -> list[str]:
    return [one["name"] for one in client.get(path).json()["models"]]


def test_a_model_is_pulled_used_and_deleted(client: httpx.Client) -> None:
    answer = client.post("/api/pull", json={"model": "all-minilm:latest"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    first, *progress, last = _lines(answer.text)
    assert (first, last) == ({"status": "pulling manifest"}, {"status": "success"})
    assert progress[-1]["completed"] == progress[-1]["total"] > 0
    assert progress[-1]["digest"].startswith("sha256:")
    name = "all-MiniLM-L6-v2:latest"
    assert {name, "judge:latest", "assistant:latest"} <= set(_names(client, "/api/tags"))
    assert name not in _names(client, "/api/ps")
    shown = client.post("/api/show", json={"model": "all-minilm"}).json()
    assert shown["capabilities"] == ["embedding"]
    assert shown["model_info"]["earshot.context_length"] == POSITIONS
    assert client.post("/api/show", json={"model": "judge"}).json()["capabilities"] == []

    body = {"model": "all-minilm", "input": ["cat", LONG]}
    embedded = client.post("/api/embed", json=body).json()
    assert (embedded["model"], embedded["prompt_eval_count"]) == ("all-minilm", 3 + POSITIONS)
    np.testing.assert_allclose(np.linalg.norm(embedded["embeddings"], axis=1), 1, atol=1e-6)
    cut = {"model": "all-minilm", "input": "cat " * (POSITIONS - 2)}
    whole = client.post("/api/embed", json=cut).json()["embeddings"][0]
    np.testing.assert_allclose(embedded["embeddings"][1], whole, atol=1e-6)
    older = client.post("/api/embeddings", json={"model": name, "prompt": "cat"}).json()
    assert len(older["embedding"]) == SIZE
    np.testing.assert_allclose(older["embedding"], embedded["embeddings"][0], atol=1e-6)
    assert name in _names(client, "/api/ps")

    again = client.post("/api/pull", json={"name": "all-minilm", "stream": False})
    assert (again.status_code, again.json()) == (200, {"status": "success"})
    assert client.request("DELETE", "/api/delete", json={"model": name}).status_code == 200
    assert name not in _names(client, "/api/tags")
    gone = client.request("DELETE", "/api/delete", json={"model": name})
    assert (gone.status_code, list(gone.json())) == (404, ["error"])


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/api/pull", {"model": "tinny"}, 404, "no model is called 'tinny'"),
        ("/api/pull", {"model": "http://127.0.0.1/a/b"}, 400, "must be a name"),
        ("/api/pull", {}, 400, "1 to 200 characters"),
        ("/api/pull", {"model": "someone/missing", "stream": False}, 502, "has no someone/missing"),
        ("/api/show", {"model": "nothing"}, 404, "'nothing' not found"),
        ("/api/embed", {"model": "judge", "input": "x"}, 404, "Unknown model 'judge'"),
        ("/api/embed", {"model": "judge", "input": []}, 404, "'judge' not found"),
        ("/api/embed", {"model": "judge", "input": ["a", 3]}, 400, "input"),
        ("/api/embed", {"model": "judge", "input": ["a", ""]}, 400, "'input[1]': it is empty"),
        ("/api/embeddings", {"model": "judge", "prompt": ""}, 400, "'prompt': it is empty"),
    ],
)
def test_wrong_requests_are_refused(
    client: httpx.Client, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    answer = client.post(path, json=body)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert message in answer.json()["error"]


def test_a_failed_download_ends_with_its_reason(client: httpx.Client) -> None:
    lines = _lines(client.post("/api/pull", json={"model": "hf.co/someone/missing"}).text)
    assert "has no someone/missing" in lines[-1]["error"]


def test_a_text_that_is_too_long_is_an_error_on_demand(client: httpx.Client) -> None:
    assert client.post("/api/pull", json={"model": "all-minilm", "stream": False}).is_success
    body = {"model": "all-minilm", "input": LONG, "truncate": False}
    answer = client.post("/api/embed", json=body)
    assert answer.status_code == 400
    assert f"takes at most {POSITIONS}" in answer.json()["error"]
    assert client.post("/api/embed", json={"model": "all-minilm"}).json()["embeddings"] == []
    unloaded = client.post("/v1/models/all-MiniLM-L6-v2/unload")
    assert (unloaded.status_code, unloaded.json()["state"]) == (200, "unloaded")


def test_a_client_that_leaves_cancels_its_download(client: httpx.Client, hub: FakeHub) -> None:
    hub.stalls_at = 10
    with client.stream("POST", "/api/pull", json={"model": "someone/other"}) as pull:
        lines = pull.iter_lines()
        assert "manifest" in next(lines)
        assert json.loads(next(lines))["completed"] >= 0
    body = {"model": "someone/other"}
    while True:  # joins the download until it has ended, or starts one that is refused below
        states = client.get("/v1/models/pull").json()["pulls"]
        (state,) = [one["state"] for one in states if one["model"] == body["model"]]
        if state != "running":
            break
    assert state == "cancelled"
