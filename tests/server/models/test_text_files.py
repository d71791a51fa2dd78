"""A model for embeddings or reranking is fetched from a hub with the files that it needs."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.models.errors import ModelsError
from server.models.inventory import find_installed, read_record
from server.models.progress import DownloadProgress
from server.models.pull import PullResult, pull
from server.models.source_spec import source_of
from tests.engines.embed.tiny_model import write_embedder, write_reranker
from tests.server.models.fake_hub import FakeHub, serving

pytestmark = pytest.mark.live

EMBEDDER, SCORER = "BAAI/bge-small-en-v1.5", "someone/judge"
OTHER_FORMS = {
    "README.md": b"not wanted",
    "onnx/model.onnx": b"the same weights",
    "pytorch_model.bin": b"the same weights",
    "openvino/config.json": b"{}",
    "2_Dense/model.safetensors": b"not supported",
}


def _content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def embedder(tmp_path: Path) -> dict[str, bytes]:
    write_embedder(tmp_path / "embedder")
    return _content(tmp_path / "embedder")


@pytest.fixture
def fake(tmp_path: Path, embedder: dict[str, bytes]) -> Iterator[FakeHub]:
    write_reranker(tmp_path / "scorer")
    scorer = _content(tmp_path / "scorer")
    with serving(FakeHub({EMBEDDER: embedder | OTHER_FORMS, SCORER: scorer | OTHER_FORMS})) as fake:
        yield fake


def _pull(models: Path, fake: FakeHub, wanted: str) -> PullResult:
    return pull(source_of(wanted), models, fake.hub(), DownloadProgress(io.StringIO()))


def test_an_embedder_keeps_its_folders_and_is_resumed(
    tmp_path: Path, fake: FakeHub, embedder: dict[str, bytes]
) -> None:
    models = tmp_path / "models"
    good = embedder["1_Pooling/config.json"]
    fake.damaged["1_Pooling/config.json"] = bytes([good[0] ^ 1]) + good[1:]
    with pytest.raises(ModelsError, match=r"1_Pooling/config\.json was damaged"):
        _pull(models, fake, "bge-small-en-v1.5")
    fake.damaged.clear()
    pulled = _pull(models, fake, "bge-small-en-v1.5")
    assert (pulled.folder, pulled.kind) == (models / "bge-small-en-v1.5", "embed")
    found = _content(pulled.folder)
    assert found.pop("source.json")
    assert found == embedder
    record = read_record(pulled.folder)
    assert record is not None
    assert set(record.files) == set(embedder)
    assert find_installed(models, EMBEDDER).kind == "embed"
    assert _pull(models, fake, EMBEDDER) == PullResult(pulled.folder, "embed", False)


def test_a_cross_encoder_is_recognised_by_its_class(tmp_path: Path, fake: FakeHub) -> None:
    pulled = _pull(tmp_path / "models", fake, SCORER)
    assert (pulled.folder.name, pulled.kind) == ("someone--judge", "rerank")
    assert not (pulled.folder / "onnx").exists()


def test_another_network_is_fetched_as_an_exported_file(tmp_path: Path, fake: FakeHub) -> None:
    files = fake.repositories[EMBEDDER]
    files["config.json"] = json.dumps(
        {**json.loads(files["config.json"]), "model_type": "x"}
    ).encode()
    files["onnx/model.onnx_data"] = b"its weights"
    folder = _pull(tmp_path / "models", fake, EMBEDDER).folder
    assert {path.name for path in (folder / "onnx").iterdir()} == {"model.onnx", "model.onnx_data"}
    assert not (folder / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("removed", "message"),
    [
        (("tokenizer.json",), "has no tokenizer.json"),
        (("model.safetensors", "onnx/model.onnx"), "has neither model.safetensors of a supported"),
        (("1_Pooling/config.json",), "No such file"),
    ],
)
def test_an_incomplete_repository_is_named(
    tmp_path: Path, fake: FakeHub, removed: tuple[str, ...], message: str
) -> None:
    for path in removed:
        del fake.repositories[EMBEDDER][path]
    with pytest.raises(ModelsError, match=f"{EMBEDDER} .*{message}"):
        _pull(tmp_path / "models", fake, EMBEDDER)
    assert not (tmp_path / "models" / "bge-small-en-v1.5").exists()


def test_a_config_that_cannot_be_read_is_named(tmp_path: Path, fake: FakeHub) -> None:
    fake.repositories[EMBEDDER]["config.json"] = b'{"architectures": 3}'
    with pytest.raises(ModelsError, match=rf"{EMBEDDER}: config\.json: Expected"):
        _pull(tmp_path / "models", fake, EMBEDDER)
