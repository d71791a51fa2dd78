"""NVIDIA's `tritonclient`, exactly as its registry has it, over HTTP and gRPC."""

from pathlib import Path

import pytest

from core.audio import ASR_RATE_HZ, AudioFrame
from media.files.decode import write_wav
from tests.clients.programs import python_with, told_by
from tests.engines.embed.tiny_model import SIZE, write_embedder
from tests.ports import reserved_port
from tests.server.process import serving
from tests.speech import say

pytestmark = pytest.mark.real

PROGRAMS = Path(__file__).parent / "kserve"
WORDS = "turn on the kitchen light"


def test_tritonclient_works_with_our_server(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    python = python_with(PROGRAMS / "requirements.txt", tmp_path_factory.mktemp("tritonclient"))
    write_embedder(tmp_path / "models/tiny-embedder")
    clip = tmp_path / "clip.wav"
    write_wav(clip, [AudioFrame(say(WORDS, lead_ms=200, tail_ms=500), ASR_RATE_HZ, 0)])
    with reserved_port() as http_port, reserved_port() as grpc_port:
        settings = {
            "EARSHOT_PATHS__MODELS_DIR": str(tmp_path / "models"),
            "EARSHOT_KSERVE__HTTP_PORT": str(http_port),
            "EARSHOT_KSERVE__GRPC_PORT": str(grpc_port),
        }
        with serving(tmp_path, settings=settings):
            urls = [f"127.0.0.1:{port}" for port in (http_port, grpc_port)]
            got = told_by(tmp_path, python, PROGRAMS / "client.py", *urls, str(clip))
    for told in got.values():
        assert told["states"] == [True, True]
        heard, nothing = told["transcripts"]
        assert "".join(c for c in heard.lower() if c.isalpha() or c == " ").strip() == WORDS
        assert nothing == ""
        is_loaded, is_still_loaded, vectors = told["embeddings"]
        assert (is_loaded, is_still_loaded) == (True, False)
        assert [len(vector) for vector in vectors] == [SIZE, SIZE]
        assert "Unknown model 'parrot'" in told["refused"][1]
        assert told["inputs"] == ["WAV", "WAV_LENS", "TEXT_PREFIX"]
        assert int(told["statistics"]["inference_stats"]["queue"]["ns"]) > 0
    assert got["http"]["embeddings"] == got["grpc"]["embeddings"]
