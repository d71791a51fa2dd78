"""Models on a server of others: what it is sent, and what a client gets when it answers, refuses,
fails, is slow or is not there. At the end, that server is a second Earshot."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email import message_from_bytes
from email.message import Message
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx2 as httpx
import pytest
from openai import OpenAI

from tests.engines.embed.tiny_model import write_embedder
from tests.ports import reserved_port
from tests.server.process import run, serving

pytestmark = pytest.mark.live

PATIENCE_S = 300
"For what takes no time on an idle machine."

BEGIN, END = b"ID3 begin", b" and end"
"A sound file in two parts."
EVENTS = (
    b'data: {"choices": [{"delta": {"content": "good"}}]}\n\n',
    b'data: {"choices": [{"delta": {"content": " day"}}]}\n\n',
    b"data: [DONE]\n\n",
)

VECTOR = [0.5] * 100_000
"Its JSON is larger than the answers of language models may be."


class Upstream(ThreadingHTTPServer):
    """A model server that keeps what it gets, and does what the model's name says."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str | None, dict[str, Any]]] = []
        self.forms: list[Message] = []
        self.has_slow, self.goes_on = Event(), Event()
        self.was_cut = Event()
        "Set when a client closes the connection in the middle of an answer."
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Upstream
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get_content_type() == "multipart/form-data":
            head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
            self.server.forms.append(message_from_bytes(head + sent))
            body = {"model": field_of(self.server.forms[-1], "model").decode()}
        else:
            body = json.loads(sent)
        self.server.got.append((self.path, self.headers["Authorization"], body))
        match body["model"]:
            case "refuses":
                self._answer(400, {"error": {"message": "secret cat is too long"}})
            case "fails":
                self._answer(500, {})
            case "voice":
                self._begin("audio/mpeg", BEGIN)
                self.server.goes_on.wait(PATIENCE_S)
                self._end(END)
            case "endless":
                self._begin("audio/mpeg", BEGIN)
                self._send_until_cut()
            case "chat" | "hears" if body.get("stream", True):
                self._begin("text/event-stream", EVENTS[0])
                self.server.goes_on.wait(PATIENCE_S)
                self._end(b"".join(EVENTS[1:]))
            case "breaks":
                self._begin("text/event-stream", EVENTS[0])
                self.close_connection = True
            case name:
                if name == "slow":
                    self.server.has_slow.set()
                    self.server.goes_on.wait(PATIENCE_S)
                self._answer(200, _computed(name, body))

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _begin(self, content_type: str, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._send(data)

    def _send(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _end(self, data: bytes) -> None:
        self._send(data)
        self.wfile.write(b"0\r\n\r\n")

    def _send_until_cut(self) -> None:
        try:
            while True:
                self._send(bytes(65_536))
        except OSError:
            self.server.was_cut.set()
            self.close_connection = True

    def log_message(self, *_: object) -> None: ...


def _computed(model: str, body: dict[str, Any]) -> dict[str, Any]:
    if "documents" in body:
        scores = [0.25 * index for index in range(len(body["documents"]))]
        results = [{"index": at, "relevance_score": one} for at, one in enumerate(scores)]
        return {"model": model, "results": results, "usage": {"total_tokens": 9}}
    count = len(body["input"]) if isinstance(body["input"], list) else 1
    return {"model": model, "data": [{"embedding": VECTOR}] * count, "extra": 1}


def field_of(form: Message, name: str) -> bytes:
    """Returns the bytes of a part of a form."""
    (found,) = [
        part.get_payload(decode=True)
        for part in form.walk()
        if part.get_param("name", header="Content-Disposition") == name
    ]
    assert isinstance(found, bytes)
    return found


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.goes_on.set()
        server.shutdown()


@pytest.fixture(scope="module")
def ingrain_port() -> Iterator[int]:
    with reserved_port() as port:
        yield port


@pytest.fixture(scope="module")
def url(
    upstream: Upstream, ingrain_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("remote")
    key = folder / "key"
    key.write_text("upstream-key\n", encoding="utf-8")
    with reserved_port() as nobody:
        address = f'base_url = "http://127.0.0.1:{upstream.server_port}/v1"\n'
        base = f"{address}timeout_s = {PATIENCE_S}\n"
        tables = (
            f'big]\nkind = "embed"\nmodel = "org/big"\napi_key_file = "{key}"\n{base}',
            f'ranker]\nkind = "rerank"\n{base}',
            f'refuses]\nkind = "embed"\n{base}',
            f'fails]\nkind = "embed"\n{base}',
            f'slow]\nkind = "embed"\nmax_requests = 1\n{base}',
            f'late]\nkind = "embed"\nmodel = "slow"\ntimeout_s = 0.2\n{address}',
            f'chat]\nkind = "llm"\nmax_requests = 1\n{base}',
            f'voice]\nkind = "tts"\n{base}',
            f'endless]\nkind = "tts"\n{base}',
            f'hears]\nkind = "asr"\nmodel = "hears"\n{base}',
            f'breaks]\nkind = "asr"\n{base}',
            f'deaf]\nkind = "asr"\nmodel = "refuses"\n{base}',
            f'mute]\nkind = "tts"\nmodel = "fails"\n{base}',
            f'absent]\nkind = "llm"\nbase_url = "http://127.0.0.1:{nobody}/v1"\n',
            f'gone]\nkind = "embed"\nbase_url = "http://127.0.0.1:{nobody}/v1"\n',
        )
        config = folder / "earshot.toml"
        config.write_text("".join(f"[remote.{table}" for table in tables), encoding="utf-8")
        settings = {
            "EARSHOT_PATHS__MODELS_DIR": str(folder),
            "EARSHOT_INGRAIN__PORT": str(ingrain_port),
        }
        with serving(folder, "--config", str(config), settings=settings) as server:
            yield server.url


def _embedded(url: str, model: str, **fields: Any) -> httpx.Response:
    body = {"model": model, "input": "secret cat", **fields}
    return httpx.post(f"{url}/v1/embeddings", json=body, timeout=PATIENCE_S)


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
    assert httpx.post(f"{url}/v1/rerank", json=body, timeout=PATIENCE_S).status_code == 200
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


OTHER_DOORS = ("llama.cpp", "ollama", "kserve", "ingrain")
"Doors with a form of their own for embeddings."


def _vector_of(door: str, url: str, ingrain_port: int, model: str) -> tuple[httpx.Response, Any]:
    """Asks one of the other doors for a vector; returns its answer, and the vector if there is
    one."""
    tensor = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["secret cat"]}
    ingrain = f"http://127.0.0.1:{ingrain_port}/embed_text"
    address, body = {
        "llama.cpp": (f"{url}/embedding", {"model": model, "content": "secret cat"}),
        "ollama": (f"{url}/api/embed", {"model": model, "input": "secret cat"}),
        "kserve": (f"{url}/v2/models/{model}/infer", {"inputs": [tensor]}),
        "ingrain": (ingrain, {"name": model, "text": "secret cat"}),
    }[door]
    answer = httpx.post(address, json=body, timeout=PATIENCE_S)
    if answer.status_code != 200:
        return answer, None
    match door, answer.json():
        case "llama.cpp", [{"embedding": [vector]}]:
            return answer, vector
        case "kserve", {"outputs": [{"data": vector}]}:
            return answer, vector
        case _, {"embeddings": [vector]}:
            return answer, vector
    raise AssertionError(answer.text[:200])


@pytest.mark.parametrize("door", OTHER_DOORS)
def test_other_doors_get_vectors_of_the_other_server(
    url: str, ingrain_port: int, upstream: Upstream, door: str
) -> None:
    _, vector = _vector_of(door, url, ingrain_port, "big")
    assert len(vector) == len(VECTOR)
    assert len(set(vector)) == 1
    expected = {"model": "org/big", "input": ["secret cat"]}
    assert upstream.got[-1] == ("/v1/embeddings", "Bearer upstream-key", expected)


@pytest.mark.parametrize("door", OTHER_DOORS)
@pytest.mark.parametrize(
    ("model", "status"), [("refuses", 400), ("fails", 502), ("gone", 502), ("late", 504)]
)
def test_other_doors_have_the_same_failures(
    url: str, ingrain_port: int, door: str, model: str, status: int
) -> None:
    answer, _ = _vector_of(door, url, ingrain_port, model)
    assert answer.status_code == status
    assert "secret cat" not in answer.text


def test_llama_cpps_door_ranks_on_the_other_server(url: str, upstream: Upstream) -> None:
    body = {"model": "ranker", "query": "secret cat", "documents": ["dog", "cat"], "top_n": 1}
    answer = httpx.post(f"{url}/reranking", json=body, timeout=PATIENCE_S).json()
    assert answer["results"] == [{"index": 1, "relevance_score": 0.25}]
    assert answer["usage"]["total_tokens"] == 9
    assert upstream.got[-1][2]["documents"] == ["dog", "cat"]  # all of them, to sort them here


def test_other_doors_list_the_models_of_others(url: str, ingrain_port: int) -> None:
    ingrain = f"http://127.0.0.1:{ingrain_port}"
    assert "big" in httpx.get(f"{ingrain}/loaded_models").json()["models"]
    answer = httpx.get(f"{ingrain}/model_embedding_size?name=big", timeout=PATIENCE_S)
    assert answer.json() == {"embeddingSize": len(VECTOR)}
    assert "already loaded" in httpx.post(f"{ingrain}/load_model", json={"name": "big"}).text
    assert httpx.post(f"{ingrain}/unload_model", json={"name": "big"}).status_code == 409
    assert httpx.get(f"{url}/v2/models/big/ready").status_code == 200
    metadata = httpx.get(f"{url}/v2/models/big").json()
    assert metadata["outputs"] == [{"name": "EMBEDDING", "datatype": "FP32", "shape": [-1, -1]}]
    assert httpx.post(f"{url}/v2/repository/models/big/unload").status_code == 409
    shown = httpx.post(f"{url}/api/show", json={"model": "big"}).json()
    assert shown["capabilities"] == ["embedding"]


def test_a_request_above_the_limit_is_told_to_wait(url: str, upstream: Upstream) -> None:
    upstream.has_slow.clear()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(_embedded, url, "slow")
        assert upstream.has_slow.wait(PATIENCE_S)
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
    found = {card["id"]: card["kind"] for card in cards if card["owned_by"] == "remote"}
    expected = {"big": "embed", "ranker": "rerank", "chat": "llm", "voice": "tts", "hears": "asr"}
    assert expected.items() <= found.items()
    defaults = {card["id"] for card in cards if card["is_default"]}
    assert defaults & found.keys() == {"big", "ranker"}  # no other model of their kinds is there
    assert "chat:latest" in [one["name"] for one in httpx.get(f"{url}/api/tags").json()["models"]]


def _spoken(model: str) -> dict[str, Any]:
    return {"json": {"model": model, "input": "secret cat", "voice": "rare", "own_field": 1}}


def _heard(model: str, **fields: str) -> dict[str, Any]:
    data = {"model": model, "prompt": "secret cat", "own_field": "1", **fields}
    return {"data": data, "files": {"file": ("cat.flac", b"sound of a cat", "audio/flac")}}


def _asked(model: str, **fields: Any) -> dict[str, Any]:
    return {
        "json": {"model": model, "messages": [{"role": "user", "content": "secret cat"}]} | fields
    }


SPEECH, HEARING, CHAT = "audio/speech", "audio/transcriptions", "chat/completions"


@pytest.mark.parametrize(
    ("path", "request_of", "model", "parts"),
    [
        (SPEECH, _spoken, "voice", (BEGIN, END)),
        (HEARING, _heard, "hears", (EVENTS[0], b"".join(EVENTS[1:]))),
        (CHAT, partial(_asked, stream=True), "chat", (EVENTS[0], b"".join(EVENTS[1:]))),
    ],
)
def test_a_streamed_answer_comes_part_by_part(
    url: str,
    upstream: Upstream,
    path: str,
    request_of: Callable[[str], dict[str, Any]],
    model: str,
    parts: tuple[bytes, bytes],
) -> None:
    upstream.goes_on.clear()
    with httpx.stream(
        "POST", f"{url}/v1/{path}", timeout=PATIENCE_S, **request_of(model)
    ) as answer:
        received = answer.iter_raw()
        assert next(received) == parts[0]  # the other server waits for `goes_on`
        upstream.goes_on.set()
        assert b"".join(received) == parts[1]
    assert upstream.got[-1][0] == f"/v1/{path}"
    expected = "audio/mpeg" if path == SPEECH else "text/event-stream"
    assert answer.headers["Content-Type"].startswith(expected)


def test_a_form_goes_on_with_all_of_its_fields(url: str, upstream: Upstream) -> None:
    upstream.goes_on.set()
    for path in (HEARING, "audio/translations"):
        answer = httpx.post(
            f"{url}/v1/{path}",
            timeout=PATIENCE_S,
            **_heard("hears", response_format="diarized_json"),
        )
        assert (answer.status_code, answer.content) == (200, b"".join(EVENTS))
        form = upstream.forms[-1]
        assert field_of(form, "file") == b"sound of a cat"
        assert field_of(form, "response_format") == b"diarized_json"
        assert field_of(form, "own_field") == b"1"
        names = [part.get_filename() for part in form.walk() if part.get_filename()]
        assert names == ["cat.flac"]


def test_a_client_that_leaves_ends_the_request_there(url: str, upstream: Upstream) -> None:
    upstream.was_cut.clear()
    with httpx.stream(
        "POST", f"{url}/v1/{SPEECH}", timeout=PATIENCE_S, **_spoken("endless")
    ) as answer:
        next(answer.iter_raw())
    assert upstream.was_cut.wait(PATIENCE_S)


def test_a_stream_that_breaks_between_events_ends_with_an_error(url: str) -> None:
    answer = httpx.post(
        f"{url}/v1/{HEARING}", timeout=PATIENCE_S, **_heard("breaks", stream="true")
    )
    begin, _, error = answer.content.partition(b"\n\n")
    assert begin + b"\n\n" == EVENTS[0]
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "engine_unreachable"


@pytest.mark.parametrize(
    ("path", "sent", "status", "code"),
    [
        (HEARING, _heard("deaf"), 400, "refused_by_model"),
        (SPEECH, _spoken("mute"), 502, "engine_failed"),
        (SPEECH, _spoken("deaf"), 404, "model_not_found"),
        (CHAT, _asked("absent"), 502, "engine_unreachable"),
    ],
)
def test_each_kind_has_the_same_failures(
    url: str, path: str, sent: dict[str, Any], status: int, code: str
) -> None:
    answer = httpx.post(f"{url}/v1/{path}", timeout=PATIENCE_S, **sent)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert "secret cat" not in answer.text


def test_a_language_model_has_places_of_its_own(url: str, upstream: Upstream) -> None:
    upstream.goes_on.clear()
    sent = _asked("chat", stream=True)
    with httpx.stream("POST", f"{url}/v1/{CHAT}", timeout=PATIENCE_S, **sent) as answer:
        received = answer.iter_raw()  # it closes the connection when it is forgotten
        next(received)
        second = httpx.post(f"{url}/v1/{CHAT}", timeout=PATIENCE_S, **sent)
        upstream.goes_on.set()
        assert b"".join(received) == b"".join(EVENTS[1:])
    assert (second.status_code, second.json()["error"]["code"]) == (429, "too_many_requests")
    assert int(second.headers["Retry-After"]) > 0
    own = httpx.post(f"{url}/v1/{CHAT}", timeout=PATIENCE_S, **_asked("assistant"))
    assert own.status_code == 200


@pytest.fixture(scope="module")
def chained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """A client of an Earshot whose models of these names run on a second one."""
    folder = tmp_path_factory.mktemp("there")
    write_embedder(folder / "models/tiny-embedder")
    there_settings = {"EARSHOT_PATHS__MODELS_DIR": str(folder / "models")}
    with serving(folder, settings=there_settings) as there:
        base = f'base_url = "{there.url}/v1"\ntimeout_s = {PATIENCE_S}\n'
        tables = (
            f'far-ears]\nkind = "asr"\nmodel = "default"\n{base}',
            f'far-voice]\nkind = "tts"\nmodel = "espeak"\n{base}',
            f'far-chat]\nkind = "llm"\nmodel = "assistant"\n{base}',
            f'tiny-embedder]\nkind = "embed"\n{base}',
        )
        here = tmp_path_factory.mktemp("here")
        config = here / "earshot.toml"
        config.write_text("".join(f"[remote.{table}" for table in tables), encoding="utf-8")
        ears = {
            "EARSHOT_ASR__ENGINE": "openai",
            "EARSHOT_ASR__OPTIONS__BASE_URL": f"{there.url}/v1",
            "EARSHOT_ASR__OPTIONS__MODEL": "default",
            "EARSHOT_ASR__OPTIONS__TIMEOUT_S": "60",
        }
        with (
            serving(here, "--config", str(config), recogniser=ears) as server,
            OpenAI(api_key="key", base_url=f"{server.url}/v1", max_retries=0) as client,
        ):
            yield client


def test_openais_client_uses_a_second_earshot_through_the_first(chained: OpenAI) -> None:
    speech = chained.audio.speech.create(
        model="far-voice",
        voice="default",
        input="turn on the kitchen light",
        response_format="wav",
    ).read()
    assert speech.startswith(b"RIFF")
    file = ("speech.wav", speech)
    plain = chained.audio.transcriptions.create(model="far-ears", file=file, language="en")
    assert "kitchen" in plain.text.lower()
    own = chained.audio.transcriptions.create(model="default", file=file)
    assert own.text.split() == plain.text.split()  # by the engine `openai`
    events = list(chained.audio.transcriptions.create(model="far-ears", file=file, stream=True))
    assert [one.text for one in events if one.type == "transcript.text.done"] == [plain.text]
    sent: Any = [{"role": "user", "content": "turn on the kitchen light"}]
    whole = chained.chat.completions.create(model="far-chat", messages=sent)
    chunks = list(chained.chat.completions.create(model="far-chat", messages=sent, stream=True))
    assert whole.choices[0].message.content
    assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    vectors = chained.embeddings.create(model="tiny-embedder", input=["cat", "dog"])
    assert len(vectors.data) == 2


def test_a_wrong_table_names_its_field(tmp_path: Path) -> None:
    settings = {"EARSHOT_REMOTE__X__KIND": "embed", "EARSHOT_REMOTE__X__BASE_URL": "ftp://x"}
    ran = run(tmp_path, "serve", "--port", "0", settings=settings)
    assert ran.returncode != 0
    assert "base_url" in ran.stderr + ran.stdout


def test_a_name_of_this_server_is_refused(tmp_path: Path) -> None:
    settings = {
        "EARSHOT_REMOTE__DEFAULT__KIND": "llm",
        "EARSHOT_REMOTE__DEFAULT__BASE_URL": "http://127.0.0.1:9/v1",
    }
    ran = run(tmp_path, "serve", "--port", "0", settings=settings)
    assert ran.returncode != 0
    assert "remote.default" in ran.stderr + ran.stdout
