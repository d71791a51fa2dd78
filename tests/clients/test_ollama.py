"""Ollama's Python client, exactly as its registry has it, against a server."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.clients.programs import python_with, told_by
from tests.clients.scripted_server import LONG, answering
from tests.engines.embed.tiny_model import SIZE, write_embedder
from tests.server.models.fake_hub import FakeHub, serving

pytestmark = pytest.mark.real

PROGRAMS = Path(__file__).parent / "ollama"


def test_ollamas_client_works_with_our_server(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    python = python_with(PROGRAMS / "requirements.txt", tmp_path_factory.mktemp("ollama"))
    write_embedder(tmp_path / "embedder")
    files = [path for path in (tmp_path / "embedder").rglob("*") if path.is_file()]
    content = {
        path.relative_to(tmp_path / "embedder").as_posix(): path.read_bytes() for path in files
    }
    hub = FakeHub({"sentence-transformers/all-MiniLM-L6-v2": content})
    models = str(tmp_path / "models")
    with (
        serving(hub) as fake,
        answering(
            tmp_path, HF_ENDPOINT=fake.url, NO_PROXY="*", EARSHOT_PATHS__MODELS_DIR=models
        ) as server,
    ):
        got = told_by(tmp_path, python, PROGRAMS / "client.py", server.url)
    assert got["models"] == ["assistant:latest", "openai:latest"]
    assert got["can"] == ["completion", "tools"]
    for model in got["models"]:
        told = got[model]
        assert told["calls"] == [{"name": "set_light", "arguments": {"on": True}}]
        assert told["answer"] == "It says on."
        assert told["streamed"] == told["generated"] == LONG
        assert told["tokens"] == 7
        # The assistant has tools, so it answers in words before it answers in the form.
        held = {"on": model.startswith("assistant")}
        assert told["held"] == told["held, streamed"] == held
    _check_embedder(got["embedder"])
    status, message = got["refused"]
    assert (status, "'seed'" in message) == (400, True)


def _check_embedder(told: dict[str, Any]) -> None:
    """Checks what the program tells about a model that it pulled, used and deleted."""
    assert told["steps"] == ["pulling manifest", "success"]
    assert told["is_whole"]
    assert (told["again"], told["deleted"]) == ("success", "success")
    assert told["can"] == ["embedding"]
    assert (np.shape(told["vectors"]), told["tokens"]) == ((2, SIZE), 7)
    np.testing.assert_allclose(np.linalg.norm(told["vectors"], axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(told["older"], told["vectors"][0], atol=1e-6)
    assert "all-MiniLM-L6-v2:latest" in told["running"]
    assert told["left"] == ["assistant:latest", "openai:latest"]
    assert told["refused"] == 404
    assert "no model is called 'tinny'" in told["unknown"]
