"""KServe's protocol over gRPC and HTTP, as its clients' bytes, against `earshot serve`."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2 as httpx
import numpy as np
import numpy.typing as npt
import pytest

from tests.engines.embed.tiny_model import SIZE, write_embedder
from tests.ports import reserved_port
from tests.server.grpc.wire import (
    chunk,
    number,
    streaming_requests,
    tensor,
    texts,
    transcripts_of,
    whisper_request,
)
from tests.server.process import serving
from tests.speech import say

pytestmark = pytest.mark.live

WORDS = "turn on the kitchen light"
SERVICE = "/inference.GRPCInferenceService"
USUAL = b"<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"


@dataclass(frozen=True, slots=True)
class Ports:
    main: str
    http: str
    metrics: str
    channel: grpc.Channel

    def call(self, method: str, message: bytes = b"", *metadata: tuple[str, str]) -> bytes:
        """The reply's bytes, of a call without any generated code."""
        function = self.channel.unary_unary(f"{SERVICE}/{method}")
        return bytes(function(message, metadata=metadata, timeout=60))


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    folder: Path = tmp_path_factory.mktemp("server")
    write_embedder(folder / "models/tiny-embedder")
    with (
        reserved_port() as http_port,
        reserved_port() as grpc_port,
        reserved_port() as metrics_port,
    ):
        settings = {
            "EARSHOT_PATHS__MODELS_DIR": str(folder / "models"),
            "EARSHOT_KSERVE__HTTP_PORT": str(http_port),
            "EARSHOT_KSERVE__GRPC_PORT": str(grpc_port),
            "EARSHOT_KSERVE__METRICS_PORT": str(metrics_port),
        }
        with (
            serving(folder, settings=settings) as server,
            grpc.insecure_channel(
                f"127.0.0.1:{grpc_port}", options=[("grpc.enable_http_proxy", 0)]
            ) as channel,
        ):
            http, metrics = (f"http://127.0.0.1:{port}" for port in (http_port, metrics_port))
            yield Ports(server.url, http, metrics, channel)


@pytest.fixture(scope="module")
def speech() -> npt.NDArray[np.float32]:
    return (say(WORDS, lead_ms=200, tail_ms=500) / 32768).astype(np.float32)


def words(text: bytes) -> str:
    return "".join(c for c in text.decode().lower() if c.isalpha() or c == " ").strip()


def test_a_batch_of_whispers_client_is_recognised(
    ports: Ports, speech: npt.NDArray[np.float32]
) -> None:
    rows = np.zeros((3, 480_000), np.float32)  # each is 30 s, and the batch more than 4 MB
    rows[:2, : len(speech)] = speech
    lengths = [len(speech), 8000, 16_000]  # only the beginning of the second one counts
    reply = ports.call("ModelInfer", whisper_request(rows, lengths, [USUAL, b"", USUAL]))
    assert chunk(3, b"100000000") in reply
    first, second, third = transcripts_of(reply)
    assert words(first) == WORDS
    assert words(second) != WORDS
    assert third == b""
    statistics = ports.call("ModelStatistics")
    assert chunk(1, b"infer_bls") in statistics
    assert number(1, 3) in statistics  # a batch of three


def test_the_last_reply_of_a_sequence_has_all_words(
    ports: Ports, speech: npt.NDArray[np.float32]
) -> None:
    pieces = list(streaming_requests(speech))
    replies = [transcripts_of(ports.call("ModelInfer", piece)) for piece in pieces]
    assert [len(one) for one in replies] == [1] * len(pieces)
    assert words(replies[-1][0]) == WORDS
    with pytest.raises(grpc.RpcError) as error:
        ports.call("ModelInfer", pieces[1])
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "sequence_start" in error.value.details()


def test_texts_become_vectors_over_both_protocols(ports: Ports) -> None:
    ports.call("RepositoryModelLoad", chunk(2, b"tiny-embedder"))
    message = b"".join(
        (
            chunk(1, b"tiny-embedder"),
            tensor(b"TEXT", b"BYTES", (2, 1)),
            chunk(7, texts(b"cat", b"dog sits")),
        )
    )
    raw = ports.call("ModelInfer", message)[-4 * 2 * SIZE :]
    over_grpc = np.frombuffer(raw, "<f4").reshape(2, SIZE)
    fields = {
        "inputs": [{"name": "TEXT", "shape": [2], "datatype": "BYTES", "data": ["cat", "dog sits"]}]
    }
    for url in (ports.main, ports.http):
        answer = httpx.post(f"{url}/v2/models/tiny-embedder/versions/1/infer", json=fields)
        (output,) = answer.json()["outputs"]
        assert (output["datatype"], output["shape"]) == ("FP32", [2, SIZE])
        np.testing.assert_allclose(output["data"], over_grpc.reshape(-1), atol=1e-6)
    openai = httpx.post(
        f"{ports.main}/v1/embeddings", json={"model": "tiny-embedder", "input": ["cat"]}
    )
    np.testing.assert_allclose(openai.json()["data"][0]["embedding"], over_grpc[0], atol=1e-6)
    assert httpx.get(f"{ports.http}/v2/models/tiny-embedder/ready").status_code == 200
    assert ports.call("ModelReady", chunk(1, b"tiny-embedder")) == number(1, 1)
    httpx.post(f"{ports.http}/v2/repository/models/tiny-embedder/unload").raise_for_status()
    assert ports.call("ModelReady", chunk(1, b"tiny-embedder")) == b""
    counters = httpx.get(f"{ports.metrics}/metrics")
    assert counters.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'nv_inference_count{model="tiny-embedder",version="1"} 6\n' in counters.text
    waiting = 'nv_inference_pending_request_count{model="infer_bls",version="1"} 0\n'
    assert waiting in counters.text
    assert httpx.get(f"{ports.metrics}/v2").status_code == 404


def test_a_stream_goes_on_after_a_wrong_message(
    ports: Ports, speech: npt.NDArray[np.float32]
) -> None:
    right = whisper_request(speech[None], [len(speech)], [b""])
    call = ports.channel.stream_stream(f"{SERVICE}/ModelStreamInfer")
    wrong, answer = call(iter((chunk(1, b"parrot"), right)), timeout=60)
    assert b"Unknown model 'parrot'" in wrong
    assert words(answer).endswith(WORDS)


@pytest.mark.parametrize(
    ("method", "message", "status"),
    [
        ("ModelInfer", b"\xff\xff", "INVALID_ARGUMENT"),
        ("ModelInfer", chunk(1, b"parrot"), "NOT_FOUND"),
        ("ModelInfer", chunk(1, b"infer_bls"), "INVALID_ARGUMENT"),
        ("ModelMetadata", chunk(1, b"infer_bls") + chunk(2, b"9"), "NOT_FOUND"),
        ("RepositoryModelUnload", chunk(2, b"infer_bls"), "FAILED_PRECONDITION"),
        ("ModelTrain", b"", "UNIMPLEMENTED"),
    ],
)
def test_errors_have_status_codes(ports: Ports, method: str, message: bytes, status: str) -> None:
    with pytest.raises(grpc.RpcError) as error:
        ports.call(method, message)
    assert error.value.code().name == status


def test_a_call_through_a_proxy_needs_the_key(ports: Ports) -> None:
    with pytest.raises(grpc.RpcError) as error:
        ports.call("ServerReady", b"", ("x-forwarded-for", "203.0.113.7"))
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
    proxied = {"X-Forwarded-For": "203.0.113.7"}
    assert httpx.get(f"{ports.http}/v2", headers=proxied).status_code == 401
    assert ports.call("ServerReady") == number(1, 1)


@pytest.mark.parametrize("body", [b"{", json.dumps({"inputs": [{"name": "WAV"}]}).encode()])
def test_errors_over_http_have_the_form_of_the_protocol(ports: Ports, body: bytes) -> None:
    answer = httpx.post(f"{ports.http}/v2/models/infer_bls/infer", content=body)
    fields: dict[str, Any] = answer.json()
    assert answer.status_code == 400
    assert list(fields) == ["error"]
