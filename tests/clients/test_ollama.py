"""Ollama's Python client, exactly as its registry has it, against a server."""

from pathlib import Path

import pytest

from tests.clients.programs import python_with, told_by
from tests.clients.scripted_server import LONG, answering

pytestmark = pytest.mark.real

PROGRAMS = Path(__file__).parent / "ollama"


def test_ollamas_client_works_with_our_server(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    python = python_with(PROGRAMS / "requirements.txt", tmp_path_factory.mktemp("ollama"))
    with answering(tmp_path) as server:
        got = told_by(tmp_path, python, PROGRAMS / "client.py", server.url)
    assert got["models"] == ["assistant:latest", "openai:latest"]
    assert got["can"] == ["completion", "tools"]
    for model in got["models"]:
        told = got[model]
        assert told["calls"] == [{"name": "set_light", "arguments": {"on": True}}]
        assert told["answer"] == "It says on."
        assert told["streamed"] == told["generated"] == LONG
        assert told["tokens"] == 7
    status, message = got["refused"]
    assert (status, "'seed'" in message) == (400, True)
