"""Chat clients of others, exactly as their registries have them, against one server each.

All clients of a language share an environment and a program: docs/clients.md names them.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame
from media.files.decode import write_wav
from tests.clients.programs import npm_program, python_with, told_by
from tests.clients.scripted_server import LONG, answering
from tests.engines.embed.tiny_model import SIZE, write_embedder
from tests.speech import say

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("npm")]

PROGRAMS = Path(__file__).parent
PYTHON_CLIENTS = (
    "langchain-openai",
    "langchain-openai, Responses",
    "langchain-ollama",
    "pydantic-ai",
    "pydantic-ai, Responses",
)
NODE_CLIENTS = (
    "@ai-sdk/openai-compatible",
    "@ai-sdk/openai, Responses",
    "@ai-sdk/openai, chat",
    "ollama",
)


def test_chat_clients_for_python_work_with_our_server(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    requirements = PROGRAMS / "chat_py" / "requirements.txt"
    python = python_with(requirements, tmp_path_factory.mktemp("chat_py"))
    write_embedder(tmp_path / "models/tiny-embedder")
    with answering(tmp_path, EARSHOT_PATHS__MODELS_DIR=str(tmp_path / "models")) as server:
        got = told_by(tmp_path, python, PROGRAMS / "chat_py" / "client.py", server.url)
    for name in PYTHON_CLIENTS:
        _check_conversation(got[name])
    assert got["llm"] == {"streamed": LONG, "answer": "One moment. It says on."}
    assert got["instructor"] == {"on": True}
    assert len(got["held"]) == 6
    assert all(got["held"].values())
    _check_vectors(got["vectors"])


def test_chat_clients_for_node_work_with_our_server(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    program = npm_program("chat_js", tmp_path_factory.mktemp("chat_js"))
    write_embedder(tmp_path / "models/tiny-embedder")
    clip = tmp_path / "clip.wav"
    pcm = say("turn on the kitchen light", lead_ms=200, tail_ms=500)
    write_wav(clip, [AudioFrame(pcm, ASR_RATE_HZ, 0)])
    settings = {
        "EARSHOT_PATHS__MODELS_DIR": str(tmp_path / "models"),
        "EARSHOT_MCP_SERVER__ENABLED": "true",
    }
    with answering(tmp_path, **settings) as server:
        got = told_by(program, "node", "client.mjs", server.url, clip)
    for name in NODE_CLIENTS:
        _check_conversation(got[name])
    _check_vectors(got["vectors"])
    assert "kitchen" in got["heard"].lower()
    assert got["speechBytes"] > 24_000
    assert got["mcp"]["server"] == "earshot"
    assert "HassTurnOn" in got["mcp"]["names"]
    assert got["mcp"]["timer"]["duration_s"] == 600


def _check_conversation(told: dict[str, Any]) -> None:
    """Checks a streamed answer, a call of the client's tool, and the answer after it."""
    assert told == {"streamed": LONG, "calls": [{"on": True}], "answer": "It says on."}


def _check_vectors(told: dict[str, list[list[float]]]) -> None:
    """Checks that both clients got the same vectors, though one door makes them 1 long."""
    one, other = (np.array(vectors) for vectors in told.values())
    assert one.shape == other.shape == (2, SIZE)
    np.testing.assert_allclose(one / np.linalg.norm(one, axis=1, keepdims=True), other, atol=1e-5)
