"""Clients for speech and reranking, exactly as their registry has them, against one server."""

from pathlib import Path

import pytest

from core.audio import ASR_RATE_HZ, AudioFrame
from media.files.decode import write_wav
from tests.clients.programs import python_with, told_by
from tests.engines.embed.tiny_model import write_reranker
from tests.ports import reserved_port
from tests.server.process import serving
from tests.speech import say

pytestmark = pytest.mark.real

PROGRAMS = Path(__file__).parent / "speech_py"


def test_speech_recognition_cohere_and_wyoming_work_with_our_server(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    python = python_with(PROGRAMS / "requirements.txt", tmp_path_factory.mktemp("speech_py"))
    write_reranker(tmp_path / "models/tiny-reranker")
    clip = tmp_path / "clip.wav"
    pcm = say("turn on the kitchen light", lead_ms=200, tail_ms=500)
    write_wav(clip, [AudioFrame(pcm, ASR_RATE_HZ, 0)])
    with reserved_port() as port:
        settings = {
            "EARSHOT_PATHS__MODELS_DIR": str(tmp_path / "models"),
            "EARSHOT_WYOMING__PORT": str(port),
        }
        with serving(tmp_path, settings=settings) as server:
            client = PROGRAMS / "client.py"
            got = told_by(tmp_path, python, client, server.url.rstrip("/"), str(port), clip)
    assert "kitchen" in got["speechrecognition"].lower()
    assert "kitchen" in got["wyoming"]["heard"].lower()
    assert got["wyoming"]["has_asr"]
    assert 0.5 < got["wyoming"]["said_s"] < 5
    for version, sorted_ in got["cohere"].items():
        places, scores = zip(*sorted_, strict=True)
        assert sorted(places) == [0, 1], version
        assert list(scores) == sorted(scores, reverse=True), version
    assert got["cohere"]["v1"] == got["cohere"]["v2"]
