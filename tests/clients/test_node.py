"""OpenAI's Node client, installed from its registry, against a server with a real recogniser."""

from pathlib import Path

import pytest

from core.audio import ASR_RATE_HZ, AudioFrame
from media.files.decode import write_wav
from tests.clients.programs import told_by
from tests.server.process import serving
from tests.speech import say

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("npm")]


def test_the_official_node_client_transcribes_and_speaks(openai_node: Path, tmp_path: Path) -> None:
    clip = tmp_path / "clip.wav"
    pcm = say("turn on the kitchen light", lead_ms=200, tail_ms=500)
    write_wav(clip, [AudioFrame(pcm, ASR_RATE_HZ, 0)])
    with serving(tmp_path) as server:
        got = told_by(openai_node, "node", "client.mjs", server.url, clip)
    text = got["plain"]["text"]
    assert "kitchen" in text.lower()
    assert got["plain"]["usage"]["type"] == "duration"
    assert got["verbose"]["text"] == text
    assert got["verbose"]["segments"]
    assert got["subtitles"].startswith("WEBVTT\n\n")
    assert "".join(got["deltas"]) == got["done"]["text"] == text
    assert got["failure"] == {
        "isNotFound": True,
        "status": 404,
        "code": "model_not_found",
        "param": "model",
    }
    assert got["speech"]["contentType"] == "audio/wav"
    assert "kitchen" in got["speech"]["heard"].lower()
    assert got["speech"]["pcmBytes"] > 24_000
    assert got["speech"]["tooLong"] == {
        "isBadRequest": True,
        "code": "string_above_max_length",
        "param": "input",
    }
    assert "assistant" in got["models"]
    assert len(got["chat"]) == 3
    assert all("kitchen" in said for said in got["chat"])
    assert (got["kinds"][0], got["kinds"][-1]) == ("response.created", "response.completed")
