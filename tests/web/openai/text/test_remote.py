"""Embeddings and reranking by a server of others: what it is sent, and what a client gets when it
answers, refuses, fails, is slow or is not there."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2 as httpx
import pytest

from tests.ports import reserved_port
from tests.server.process import run, serving

pytestmark = pytest.mark.live

VECTOR = [0.5] * 100_000
"Its JSON is larger than the answers of language models may be."


class Upstream(ThreadingHTTPServer):
    """A model server that keeps what it gets, and does what the model's name says."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str | None, dict[str, Any]]] = []
        self.has_slow, self.goes_on = Event(), Event()
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Upstream
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.path, self.headers["Authorization"], body))
        match body["model"]:
            case "refuses":
                self._answer(400, {"error": {"message": "secret cat is too long"}})
            case "fails":
                self._answer(500, {})
            case name:
                if name == "slow":
                    self.server.has_slow.set()
                    self.server.goes_on.wait(60)
                self._answer(200, {"model": name, "data": [{"embedding": VECTOR}], "extra": 1})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.goes_on.set()
        server.shutdown()


@pytest.fixture(scope="module")
def url(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("remote")
    key = folder / "key"
    key.write_text("upstream-key\n", encoding="utf-8")
    with reserved_port() as nobody:
        base = f'base_url = "http://127.0.0.1:{upstream.server_port}/v1"\n'
        tables = (
            f'big]\nkind = "embed"\nmodel = "org/big"\napi_key_file = "{key}"\n{base}',
            f'ranker]\nkind = "rerank"\n{base}',
            f'refuses]\nkind = "embed"\n{base}',
            f'fails]\nkind = "embed"\n{base}',
            f'slow]\nkind = "embed"\nmax_requests = 1\n{base}',
            f'late]\nkind = "embed"\nmodel = "slow"\ntimeout_s = 0.2\n{base}',
            f'gone]\nkind = "embed"\nbase_url = "http://127.0.0.1:{nobody}/v1"\n',
        )
        config = folder / "earshot.toml"
        config.write_text("".join(f"[remote.{table}" for table in tables), encoding="utf-8")
        settings = {"EARSHOT_PATHS__MODELS_DIR": str(folder)}
        with serving(folder, "--config", str(config), settings=settings) as server:
            yield server.url


def _embedded(url: str, model: str, **fields: Any) -> httpx.Response:
    body = {"model": model, "input": "secret cat", **fields}
    return httpx.post(f"{url}/v1/embeddings", json=body, timeout=60)


def test_a_request_goes_on_as_it_came_with_the_name_and_the_key_of_there(
    url: str, upstream: Upstream
) -> None:
    answer = _embedded(url, "big", encoding_format="float", own_field={"a": 1})
    assert upstream.got[-1] == (
        "/v1/embeddings",
        "Bearer upstream-key",
        {
            "model": "org/big",
            "input": "secret cat",
            "encoding_format": "float",
            "own_field": {"a": 1},
        },
    )
    assert answer.json() == {"model": "org/big", "data": [{"embedding": VECTOR}], "extra": 1}
    body = {"model": "default", "query": "cat", "documents": ["dog"]}
    assert httpx.post(f"{url}/v1/rerank", json=body, timeout=60).status_code == 200
    *_, last = upstream.got
    assert last == ("/v1/rerank", None, {**body, "model": "ranker"})


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [
        ("refuses", 400, "refused_by_model"),
        ("fails", 502, "engine_failed"),
        ("gone", 502, "engine_unreachable"),
        ("late", 504, "engine_timeout"),
        ("ranker", 404, "model_not_found"),
    ],
)
def test_each_failure_has_its_status_and_repeats_no_text(
    url: str, model: str, status: int, code: str
) -> None:
    answer = _embedded(url, model)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert "secret cat" not in answer.text


def test_a_request_above_the_limit_is_told_to_wait(url: str, upstream: Upstream) -> None:
    upstream.has_slow.clear()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(_embedded, url, "slow")
        assert upstream.has_slow.wait(60)
        second = _embedded(url, "slow")
        upstream.goes_on.set()
        assert first.result().status_code == 200
    assert second.status_code == 429
    assert second.json()["error"]["code"] == "too_many_requests"
    assert int(second.headers["Retry-After"]) > 0


def test_a_wrong_request_does_not_go_on(url: str, upstream: Upstream) -> None:
    count = len(upstream.got)
    assert _embedded(url, "big", input=[]).status_code == 400
    assert len(upstream.got) == count


def test_the_models_are_listed_as_those_of_others(url: str) -> None:
    cards = httpx.get(f"{url}/v1/models").json()["data"]
    found = {card["id"]: (card["kind"], card["owned_by"]) for card in cards}
    assert found["big"] == ("embed", "remote")
    assert found["ranker"] == ("rerank", "remote")


def test_a_wrong_table_names_its_field(tmp_path: Path) -> None:
    settings = {"EARSHOT_REMOTE__X__KIND": "embed", "EARSHOT_REMOTE__X__BASE_URL": "ftp://x"}
    ran = run(tmp_path, "serve", "--port", "0", settings=settings)
    assert ran.returncode != 0
    assert "base_url" in ran.stderr + ran.stdout
