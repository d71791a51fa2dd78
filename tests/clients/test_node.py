"""OpenAI's Node client, installed from its registry, against a server with a real recogniser."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core.audio import ASR_RATE_HZ, AudioFrame
from media.files import write_wav
from tests.conftest import require
from tests.server.process import serving
from tests.speech import say

pytestmark = pytest.mark.real

PROGRAM = Path(__file__).parent / "node"
INSTALL_TIMEOUT_S = 120.0
RUN_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with exactly the locked client beside it."""
    require(shutil.which("node") and shutil.which("npm"), "Node.js with npm")
    folder = tmp_path_factory.mktemp("node")
    for file in PROGRAM.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=folder,
        check=True,
        timeout=INSTALL_TIMEOUT_S,
    )
    return folder


def said(program: Path, url: str, clip: Path) -> Any:
    """What the client got."""
    ran = subprocess.run(
        ["node", "client.mjs", url, str(clip)],
        cwd=program,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_official_node_client(installed: Path, tmp_path: Path) -> None:
    clip = tmp_path / "clip.wav"
    pcm = say("turn on the kitchen light", lead_ms=200, tail_ms=500)
    write_wav(clip, [AudioFrame(pcm, ASR_RATE_HZ, 0)])
    with serving(tmp_path) as server:
        got = said(installed, server.url, clip)
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
    assert got["models"]
