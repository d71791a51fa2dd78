"""Ingrain's clients of both generations, exactly as the registry has them, against a server."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs import python_with, told_by
from tests.engines.clip.tiny_clip import DIMENSIONS, picture, write_clip
from tests.engines.embed.tiny_model import SIZE, write_embedder
from tests.ports import reserved_port
from tests.server.process import serving

pytestmark = pytest.mark.real

PROGRAMS = Path(__file__).parent / "ingrain"
NAME = "acme/tiny"
CLIP = "CLIP-ViT-B-32-laion2B-s34B-b79K"


@pytest.mark.parametrize("generation", ["new", "old"])
def test_ingrains_client_works_with_our_server(
    generation: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    lock = PROGRAMS / f"requirements-{generation}.txt"
    python = python_with(lock, tmp_path_factory.mktemp("ingrain"))
    program = PROGRAMS / ("client.py" if generation == "new" else "old_client.py")
    write_embedder(tmp_path / "models/acme--tiny")
    write_clip(tmp_path / "models" / CLIP)
    with reserved_port() as inference, reserved_port() as models:
        settings = {
            "EARSHOT_PATHS__MODELS_DIR": str(tmp_path / "models"),
            "EARSHOT_INGRAIN__PORT": str(inference),
            "EARSHOT_INGRAIN__MODEL_PORT": str(models),
        }
        with serving(tmp_path, settings=settings):
            urls = [f"http://127.0.0.1:{port}" for port in (inference, models)]
            image = b64encode(picture()).decode()
            got: dict[str, Any] = told_by(tmp_path, python, program, *urls, NAME, image)
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
        assert got["listed"] == [[NAME, "READY"], [CLIP, "UNAVAILABLE"]]
        ((name, requests, calls),) = got["requests"]
        assert (name, int(requests) >= 4, int(calls) >= 1) == (f"{NAME}/text_encoder", True, True)
    _check_clip(got["clip"], is_new=generation == "new")


def _check_clip(got: dict[str, Any], *, is_new: bool) -> None:
    assert [len(row) for row in got["texts"]] == [DIMENSIONS]
    assert [len(row) for row in got["images"]] == [4 if is_new else DIMENSIONS] * 2
    assert [len(rows) for rows in got["both"]] == [2, 1]
    assert got["both"][0][0] == pytest.approx(got["texts"][0], abs=1e-6)
    if not is_new:
        assert got["both"][1][0] == pytest.approx(got["images"][0], abs=1e-6)
    status, message = got["refused"]
    assert (status, "Invalid image. Please provide a valid" in str(message)) == (400, True)
    assert "unloaded successfully" in got["unloaded"]
    if is_new:
        assert got["size"] == DIMENSIONS
        assert (got["loaded"], got["metrics"]) == ([CLIP, "open_clip"], f"{CLIP}/encoder")
