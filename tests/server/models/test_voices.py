"""Voices by name: they are fetched like models, found by the setting, listed and removed."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from hibari.voices import VOICES, voice_path

from core.errors import ConfigError
from engines.registry import load
from server.commands.models.doctor import check
from server.commands.models.list import as_table
from server.models.errors import HubOffline, ModelsError
from server.models.inventory import find_installed, installed, partial_folder, read_record
from server.models.progress import DownloadProgress
from server.models.pull import PullResult, pull
from server.models.source_spec import source_of
from server.models.voices import (
    HIBARI_FILES,
    HIBARI_REPOSITORY,
    KOKORO_REPOSITORY,
    PIPER_REPOSITORY,
    config_lines,
    with_pulled,
)
from tests.conftest import require
from tests.engines.tts.tiny_voices import have_kokoro, have_piper, kokoro_files, piper_voice
from tests.server.models.fake_hub import FakeHub, serving

pytestmark = pytest.mark.live

VOICE = "en_US-lessac-medium"
PLACE = f"en/en_US/lessac/medium/{VOICE}.onnx"
OTHER = "de/de_DE/eva_k/x_low/de_DE-eva_k-x_low.onnx"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeHub]:
    require(have_piper() and have_kokoro(), "piper-tts, kokoro-onnx and onnx are not installed")
    made = tmp_path / "made"
    made.mkdir()
    voice = piper_voice(made, VOICE)
    model, voices = kokoro_files(made)
    piper = {PLACE: voice.read_bytes(), f"{PLACE}.json": Path(f"{voice}.json").read_bytes()}
    others = {OTHER: b"o", f"{OTHER}.json": b"{}", "voices.json": b"{}", "README.md": b"no"}
    kokoro = {"kokoro-v1.0.onnx": model.read_bytes(), "voices-v1.0.bin": voices.read_bytes()}
    held = {PIPER_REPOSITORY: piper | others, KOKORO_REPOSITORY: kokoro | {"README.md": b"no"}}
    with serving(FakeHub(held)) as fake:
        yield fake


def _pull(models: Path, fake: FakeHub | None, wanted: str = f"piper:{VOICE}") -> PullResult:
    hub = fake.hub() if fake else None
    return pull(source_of(wanted), models, hub, DownloadProgress(io.StringIO()))


def test_a_piper_voice_is_two_files_of_its_repository(tmp_path: Path, fake: FakeHub) -> None:
    pulled = _pull(tmp_path / "models", fake)
    assert pulled == PullResult(tmp_path / "models" / f"piper--{VOICE}", "voice", True)
    record = read_record(pulled.folder)
    assert record is not None
    assert (record.source, record.revision) == (PIPER_REPOSITORY, fake.commit)
    assert set(record.files) == {f"{VOICE}.onnx", f"{VOICE}.onnx.json"}
    assert not _pull(tmp_path / "models", None).is_new


def test_a_voice_download_is_resumed_and_a_damaged_file_discarded(
    tmp_path: Path, fake: FakeHub
) -> None:
    fake.damaged[PLACE] = bytes(len(fake.repositories[PIPER_REPOSITORY][PLACE]))
    with pytest.raises(ModelsError, match=rf"{VOICE}\.onnx was damaged during download"):
        _pull(tmp_path, fake)
    assert [one.name for one in installed(tmp_path)] == [f"piper:{VOICE}"]
    assert find_installed(tmp_path, f"piper:{VOICE}").kind == "partial"
    fake.damaged.clear()
    assert _pull(tmp_path, fake).is_new
    assert not partial_folder(tmp_path, f"piper--{VOICE}").exists()


@pytest.mark.parametrize("wanted", [f"piper:{VOICE}", "kokoro"])
def test_a_fetched_voice_is_listed_and_speaks_by_its_name(
    wanted: str, tmp_path: Path, fake: FakeHub
) -> None:
    models = tmp_path / "models"
    _pull(models, fake, wanted)
    (one,) = installed(models)
    assert (one.name, one.kind) == (wanted, "voice")
    assert any(wanted in line and "a voice" in line for line in as_table(models, [one], None, True))
    findings = list(check(one))
    assert [finding.verdict for finding in findings] == ["ok", "ok", "ok"]
    assert "speaks en" in findings[-1].what
    file = next(one.path.glob("*.onnx"))
    file.write_bytes(b"changed")
    assert "changed since the download" in list(check(one))[-1].what
    file.unlink()
    assert find_installed(models, wanted).problem == f"has no {file.name}"


def test_a_voice_may_be_a_name_or_a_path(tmp_path: Path, fake: FakeHub) -> None:
    models = tmp_path / "models"
    assert with_pulled("piper", {}, models) == {}
    assert with_pulled("piper", {"model": "/voices/mine.onnx"}, models)["model"] == (
        "/voices/mine.onnx"
    )
    with pytest.raises(ConfigError, match=rf"earshot models pull piper:{VOICE}"):
        with_pulled("piper", {"model": VOICE}, models)
    folder = _pull(models, fake).folder
    file = str(folder / f"{VOICE}.onnx")
    for name in (VOICE, f"piper:{VOICE}"):
        options = with_pulled("piper", {"model": name, "speed": 1.2}, models)
        assert options == {"model": file, "speed": 1.2}
    assert with_pulled("piper", {}, models) == {"model": file}, "the only one there is"
    kokoro = _pull(models, fake, "kokoro").folder
    assert with_pulled("kokoro", {"speed": 1.1}, models) == {
        "speed": 1.1,
        "model": str(kokoro / "kokoro-v1.0.onnx"),
        "voices": str(kokoro / "voices-v1.0.bin"),
    }
    given = {"model": "a.onnx", "voices": "b.bin"}
    assert with_pulled("kokoro", given, models) == given
    assert with_pulled("espeak", {}, models) == {}
    assert config_lines(folder).endswith(f'model = "{VOICE}" }}')


def test_a_file_that_is_not_a_voice_is_refused(tmp_path: Path, fake: FakeHub) -> None:
    for wrong in ("piper:", "piper:lessac", "piper:../../etc/passwd", "piper:en_US-lessac-best"):
        with pytest.raises(ModelsError, match="is not the name of a Piper voice"):
            source_of(wrong)
    with pytest.raises(ModelsError, match="has no fr/fr_FR/siwis/low/"):
        _pull(tmp_path, fake, "piper:fr_FR-siwis-low")
    with pytest.raises(HubOffline, match="is not there, and rhasspy/piper-voices"):
        _pull(tmp_path / "models", None)


def test_voices_of_hibari_are_those_of_its_package() -> None:
    assert {name: one["file"] for name, one in VOICES.items() if not one["bundled"]} == HIBARI_FILES


def test_a_voice_of_hibari_is_one_file_and_is_loaded_once_it_is_there(tmp_path: Path) -> None:
    models = tmp_path / "models"
    assert with_pulled("hibari", {}, models) == {}
    path, content = f"voices/{HIBARI_FILES['emma']}", bundled_voice().read_bytes()
    with serving(FakeHub({HIBARI_REPOSITORY: {path: content, "README.md": b"no"}})) as fake:
        pulled = _pull(models, fake, "hibari:emma")
    assert pulled == PullResult(models / "hibari--emma", "voice", True)
    assert config_lines(pulled.folder) == '[tts]\nengine = "hibari"\n\n[assistant]\nvoice = "emma"'
    options = with_pulled("hibari", {}, models)
    assert options == {"models": [str(pulled.folder / HIBARI_FILES["emma"])]}
    assert with_pulled("hibari", {"models": []}, models) == {"models": []}
    assert load("tts", "hibari", options).info.voices == {"en": ("heart", "emma")}
    (one,) = installed(models)
    assert (one.name, one.kind) == ("hibari:emma", "voice")
    assert [finding.verdict for finding in check(one)] == ["ok", "ok", "ok"]


def test_an_unknown_voice_of_hibari_is_refused() -> None:
    with pytest.raises(ModelsError, match="'robin' is no voice of hibari to pull; there are: emma"):
        source_of("hibari:robin")


def bundled_voice() -> Path:
    """The file of the voice that comes with the package: another voice has the same shape."""
    return Path(voice_path("heart"))
