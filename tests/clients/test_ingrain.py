"""Ingrain's clients of both generations, exactly as the registry has them, against a server."""

from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs import python_with, told_by
from tests.engines.embed.tiny_model import SIZE, write_embedder
from tests.ports import reserved_port
from tests.server.process import serving

pytestmark = pytest.mark.real

PROGRAMS = Path(__file__).parent / "ingrain"
NAME = "acme/tiny"


@pytest.mark.parametrize("generation", ["new", "old"])
def test_ingrains_client_works_with_our_server(
    generation: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    lock = PROGRAMS / f"requirements-{generation}.txt"
    python = python_with(lock, tmp_path_factory.mktemp("ingrain"))
    program = PROGRAMS / ("client.py" if generation == "new" else "old_client.py")
    write_embedder(tmp_path / "models/acme--tiny")
    with reserved_port() as inference, reserved_port() as models:
        settings = {
            "EARSHOT_PATHS__MODELS_DIR": str(tmp_path / "models"),
            "EARSHOT_INGRAIN__PORT": str(inference),
            "EARSHOT_INGRAIN__MODEL_PORT": str(models),
        }
        with serving(tmp_path, settings=settings):
            urls = [f"http://127.0.0.1:{port}" for port in (inference, models)]
            got: dict[str, Any] = told_by(tmp_path, python, program, *urls, NAME)
    assert got["health"] == ["The inference server is running.", "The model server is running."]
    assert [len(row) for row in got["texts"]] == [SIZE, SIZE]
    assert got["both"][0] == pytest.approx(got["texts"][0], abs=1e-6)
    assert got["unloaded"] == f"Model {NAME} unloaded successfully."
    assert got["deleted"] == f"Model {NAME} deleted successfully."
    assert not (tmp_path / "models/acme--tiny").exists()
    status, message = got["refused"]
    assert (status, "image inference" in str(message)) == (400, True)
    if generation == "new":
        assert (len(got["one"][0]), got["shape"], got["size"]) == (4, [1, SIZE], SIZE)
        assert got["loaded"] == [[NAME, "sentence_transformers"]]
        assert got["listed"] == [[NAME, "READY"]]
        ((name, requests, calls),) = got["requests"]
        assert (name, int(requests) >= 4, int(calls) >= 1) == (f"{NAME}/text_encoder", True, True)
