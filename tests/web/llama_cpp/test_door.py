"""Requests as clients of llama.cpp's server send them, against a server with two small models."""

import json
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import sleep
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

from tests.engines.embed.tiny_model import SIZE, ids_of, write_embedder, write_reranker
from tests.server.process import serving

pytestmark = pytest.mark.live


class _ModelServer(BaseHTTPRequestHandler):
    """A server that continues every text with "Hello"."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer("application/json", b'{"data": [{"id": "smol", "max_model_len": 512}]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["prompt"] == "forever":
            self._answer_forever()
            return
        usage = {"prompt_tokens": 3, "completion_tokens": body["max_tokens"]}
        if not body.get("stream"):
            whole = {"choices": [{"text": "Hello", "finish_reason": "stop"}], "usage": usage}
            self._answer("application/json", json.dumps(whole).encode())
            return
        events: list[dict[str, Any]] = [{"choices": [{"text": one}]} for one in ("Hel", "lo")]
        events += [{"choices": [{"text": "", "finish_reason": "length"}]}]
        events += [{"choices": [], "usage": usage}]
        data = "".join(f"data: {json.dumps(one)}\n\n" for one in events) + "data: [DONE]\n\n"
        self._answer("text/event-stream", data.encode())

    def _answer_forever(self) -> None:
        """Sends the same event until the client has left."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with suppress(OSError):
            while True:
                self.wfile.write(b'data: {"choices": [{"text": "on "}]}\n\n')
                sleep(0.05)

    def _answer(self, content_type: str, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    write_embedder(folder / "models/tiny-embedder")
    write_reranker(folder / "models/tiny-reranker")
    with ThreadingHTTPServer(("127.0.0.1", 0), _ModelServer) as upstream:
        Thread(target=upstream.serve_forever, daemon=True).start()
        settings = {
            "EARSHOT_PATHS__MODELS_DIR": str(folder / "models"),
            "EARSHOT_LLM__ENGINE": "openai",
            "EARSHOT_LLM__OPTIONS__BASE_URL": f"http://127.0.0.1:{upstream.server_port}/v1",
        }
        with serving(folder, settings=settings) as server:
            yield server.url
        upstream.shutdown()


def _post(url: str, path: str, status: int = 200, **body: Any) -> Any:
    answer = httpx.post(f"{url}{path}", json=body, timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_vectors_have_the_nested_form(url: str) -> None:
    (hosted,) = _post(url, "/v1/embeddings", model="default", input="dog sits")["data"]
    (one,) = _post(url, "/embedding", content="dog sits")
    assert (one["index"], len(one["embedding"]), len(one["embedding"][0])) == (0, 1, SIZE)
    np.testing.assert_allclose(one["embedding"][0], hosted["embedding"], atol=1e-6)
    others = _post(url, "/embeddings", input=["cat", "dog sits"], embd_normalize=-1)
    assert [other["index"] for other in others] == [0, 1]
    (tokens,) = _post(url, "/embedding", content=ids_of("dog sits")[0])
    np.testing.assert_allclose(tokens["embedding"], one["embedding"], atol=1e-6)


@pytest.mark.parametrize("path", ["/reranking", "/rerank", "/v1/reranking"])
def test_documents_are_sorted_by_their_score(url: str, path: str) -> None:
    documents = ["dog", "cat sits", "mat"]
    hosted = _post(url, "/v1/rerank", query="cat", documents=documents, return_documents=False)
    answer = _post(url, path, query="cat", documents=documents, top_n=2)
    assert answer["results"] == hosted["results"][:2]
    assert (answer["object"], answer["model"]) == ("list", "tiny-reranker")
    assert answer["usage"] == hosted["usage"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "'content'"),
        ({"content": ""}, "it is empty"),
        ({"content": "cat", "embd_normalize": 1}, "embd_normalize"),
        ({"content": [99]}, "the token id 99 does not exist"),
        ({"content": "cat " * 30}, "it has 32 tokens"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    url: str, body: dict[str, Any], message: str
) -> None:
    assert message in _post(url, "/embedding", 400, **body)["error"]["message"]


def test_a_text_is_continued_whole_and_in_pieces(url: str) -> None:
    whole = _post(url, "/completion", prompt="Hi", n_predict=8)
    assert (whole["content"], whole["stop"], whole["stop_type"]) == ("Hello", True, "eos")
    assert (whole["tokens_predicted"], whole["tokens_evaluated"]) == (8, 3)
    body = {"prompt": "Hi", "n_predict": 8, "stream": True}
    answer = httpx.post(f"{url}/completion", json=body, timeout=60)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line]
    assert [event["content"] for event in events] == ["Hel", "lo", ""]
    assert [event["stop"] for event in events] == [False, False, True]
    assert (events[-1]["stop_type"], events[-1]["tokens_predicted"]) == ("limit", 8)
    refused = _post(url, "/completion", 400, prompt="Hi", model="assistant")
    assert refused["error"]["code"] == "unsupported_operation"


def _get(url: str, path: str, status: int = 200) -> Any:
    answer = httpx.get(f"{url}{path}", timeout=60)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_the_model_is_described_without_paths_of_the_machine(url: str) -> None:
    _post(url, "/completion", prompt="Hi", n_predict=1)  # then the context is known
    props = _get(url, "/props")
    assert props["default_generation_settings"] == {"n_ctx": 512}
    assert props["total_slots"] >= 1
    assert props["modalities"] == {"vision": False, "audio": False}
    assert (props["model_alias"], props["model_path"]) == ("default", "default")
    assert _get(url, "/props?model=assistant")["model_alias"] == "assistant"
    assert _get(url, "/props?model=other", 404)["error"]["code"] == "model_not_found"


def test_slots_are_listed_with_their_state(url: str) -> None:
    slots = _get(url, "/slots?fail_on_no_slot=1")
    assert len(slots) == _get(url, "/props")["total_slots"]
    assert [slot["id"] for slot in slots] == list(range(len(slots)))
    assert not any(slot["is_processing"] for slot in slots)


def test_a_request_takes_a_slot_until_its_client_leaves(url: str) -> None:
    body = {"prompt": "forever", "n_predict": -1, "stream": True}
    with httpx.stream("POST", f"{url}/completion", json=body, timeout=60) as answer:
        lines = answer.iter_lines()  # a variable: httpx closes the answer with its iterator
        next(lines)
        assert sum(slot["is_processing"] for slot in _get(url, "/slots")) == 1
    for _ in range(600):
        if not any(slot["is_processing"] for slot in _get(url, "/slots")):
            break
        sleep(0.1)
    else:
        pytest.fail("the slot is still taken")
