"""Recognisers of sherpa-onnx come as archives of a release: what is kept of them, and what is
refused. The page of releases is a local one."""

import io
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import ConfigError
from engines.asr.sherpa.releases import PREFIX, find_release, releases
from server.commands.models.doctor import check
from server.commands.models.list import as_table
from server.models import sherpa_release
from server.models.errors import HubOffline, ModelsError
from server.models.inventory import find_installed, installed, partial_folder, read_record
from server.models.progress import DownloadProgress
from server.models.pull import PullResult, pull
from server.models.sherpa_release import (
    PUNCTUATION_TAG,
    REPOSITORY,
    SPOTTER_TAG,
    TAG,
    VOICES_TAG,
    ReleaseHub,
    archive_of,
    config_lines,
)
from server.models.source_spec import source_of
from serving.models.catalogue import UnknownModelError
from serving.placement.sherpa import find_sherpa, with_folder
from tests.conftest import require
from tests.engines.asr.sherpa.tone_models import (
    have_sherpa,
    punctuation,
    streaming_ctc,
    streaming_transducer,
)
from tests.engines.speaker.sherpa_models import write_voice_model
from tests.server.models.fake_hub import FakeHub, serving

pytestmark = pytest.mark.live

NAME = "streaming-zipformer-en-20M-2023-02-17"
FOLDER = PREFIX + NAME
USED = {f"{part}-epoch-99-avg-1.onnx" for part in ("encoder", "decoder", "joiner")}
FILES = {*USED, "tokens.txt", "bpe.vocab", "README.md", "source.json"}


def packed(files: dict[str, bytes]) -> bytes:
    """Returns an archive of files, by the whole path of each."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:bz2") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def release(folder: Path) -> dict[str, bytes]:
    """Returns the files of an archive as the project publishes them."""
    files = {f"{FOLDER}/{path.name}": path.read_bytes() for path in folder.iterdir()}
    extra = {"test_wavs/0.wav": b"RIFF", "test_wavs/tokens.txt": b"other", "export.sh": b"rm -rf"}
    extra |= {"README.md": b"# papers", "other-model.onnx": b"unused"}
    return files | {f"{FOLDER}/{path}": content for path, content in extra.items()}


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeHub]:
    require(have_sherpa(), "sherpa-onnx and onnx are not installed")
    files = release(streaming_transducer(tmp_path / "made"))
    with serving(FakeHub({REPOSITORY: {f"{TAG}/{FOLDER}.tar.bz2": packed(files)}})) as fake:
        yield fake


def _pull(models: Path, fake: FakeHub | None, wanted: str = f"sherpa:{NAME}") -> PullResult:
    hub = ReleaseHub(endpoint=fake.url, sleep=lambda _: None, stall_s=5.0) if fake else None
    return pull(source_of(wanted), models, hub, DownloadProgress(io.StringIO()))


def _replace(fake: FakeHub, content: bytes) -> None:
    fake.repositories[REPOSITORY] = {f"{TAG}/{FOLDER}.tar.bz2": content}


def test_what_is_loaded_is_kept_of_an_archive(tmp_path: Path, fake: FakeHub) -> None:
    pulled = _pull(tmp_path / "models", fake)
    assert pulled == PullResult(tmp_path / "models" / FOLDER, "sherpa", True)
    assert {path.name for path in pulled.folder.iterdir()} == FILES
    record = read_record(pulled.folder)
    assert record is not None
    assert record.source == f"{REPOSITORY} {TAG}/{FOLDER}.tar.bz2"
    assert set(record.files) == FILES - {"source.json"}
    assert fake.asked[0][0] == f"/{REPOSITORY}/releases/download/{TAG}/{FOLDER}.tar.bz2"
    assert _pull(tmp_path / "models", None) == PullResult(pulled.folder, "sherpa", False)


def test_a_pulled_model_is_listed_checked_and_found_by_name(tmp_path: Path, fake: FakeHub) -> None:
    models = tmp_path / "models"
    folder = _pull(models, fake).folder
    (listed,) = installed(models)
    assert (listed.name, listed.kind, listed.languages) == (f"sherpa:{NAME}", "sherpa", "en")
    assert find_installed(models, f"sherpa:{NAME}") == listed
    verdicts = [(result.verdict, result.what) for result in check(listed)]
    assert {verdict for verdict, _ in verdicts} == {"ok"}
    assert any("decodes 1 s of noise" in text for _, text in verdicts)
    assert config_lines(folder) == f'[asr]\nmodel = "sherpa:{NAME}"'
    assert [model.path for model in find_sherpa(models)] == [folder]
    for name in (NAME, FOLDER, f"sherpa:{NAME}", ""):
        assert with_folder({"model": name}, models)["model"] == str(folder)
    with pytest.raises(ConfigError, match=f"no model 'nope' of sherpa-onnx in .*{FOLDER}"):
        with_folder({"model": "nope"}, models)


def test_a_broken_connection_continues(tmp_path: Path, fake: FakeHub) -> None:
    fake.cuts = [300, 200]
    assert _pull(tmp_path / "models", fake).is_new
    assert fake.ranges(f"{FOLDER}.tar.bz2") == ["", "bytes=300-", "bytes=500-"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"<html>please log in</html>", "no readable archive"),
        (packed({})[:10], "no readable archive"),
        (packed({f"{FOLDER}/README.md": b"# nothing"}), "holds no model that can be loaded"),
        (packed({f"{FOLDER}/model.onnx": b"x" * 99}), "holds no model that can be loaded"),
    ],
)
def test_an_archive_without_a_model_leaves_nothing(
    content: bytes, why: str, tmp_path: Path, fake: FakeHub
) -> None:
    _replace(fake, content)
    with pytest.raises(ModelsError, match=why):
        _pull(tmp_path / "models", fake)
    assert installed(tmp_path / "models") == ()
    assert not partial_folder(tmp_path / "models", FOLDER).exists()


def test_no_file_leaves_the_folder(tmp_path: Path, fake: FakeHub) -> None:
    """An archive may name any path, or be a link to any file."""
    files = release(streaming_ctc(tmp_path / "other"))
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:bz2") as archive:
        for path in ("../evil.onnx", "/tmp/evil.onnx", f"{FOLDER}/../../evil.txt"):
            archive.addfile(tarfile.TarInfo(path), io.BytesIO())
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            link = tarfile.TarInfo(f"{FOLDER}/evil-{int(kind)}.txt")
            link.type, link.linkname = kind, "/etc/passwd"
            archive.addfile(link)
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    _replace(fake, data.getvalue())
    before = {*tmp_path.rglob("*")}
    folder = _pull(tmp_path / "models", fake).folder
    kept = {"model.int8.onnx", "tokens.txt", "README.md", "source.json"}
    assert {path.name for path in folder.iterdir()} == kept
    new = {path for path in {*tmp_path.rglob("*")} - before if path.is_file()}
    assert {path.parent for path in new} == {folder}


def test_an_archive_may_not_fill_the_disk(
    tmp_path: Path, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sherpa_release, "MAX_UNPACKED_BYTES", 9000)
    with pytest.raises(ModelsError, match="unpacks to more than"):
        _pull(tmp_path / "models", fake)


def test_a_missing_archive_and_a_forbidden_network_are_named(tmp_path: Path, fake: FakeHub) -> None:
    with pytest.raises(ModelsError, match="has no k2-fsa/sherpa-onnx/asr-models/sherpa-onnx-new"):
        _pull(tmp_path / "models", fake, "sherpa:sherpa-onnx-new-2027")
    with pytest.raises(HubOffline, match=FOLDER):
        _pull(tmp_path / "models", None)


@pytest.mark.parametrize("name", ["", "nope", "streaming-zipformer-en", "../x", "sherpa-onnx-a/b"])
def test_an_unknown_name_is_answered_with_similar_ones(name: str) -> None:
    with pytest.raises(UnknownModelError, match=r"similar: .*; any other is named in full"):
        source_of(f"sherpa:{name}")


def test_the_list_says_what_each_release_is(tmp_path: Path) -> None:
    lines = list(as_table(tmp_path, (), None, show_all=True))
    (line,) = [line for line in lines if f"sherpa:{NAME}" in line]
    assert line.split()[1:] == ["streaming", "42", "MB", "en", "see", "its", "model", "card"]
    assert find_release(FOLDER) == find_release(NAME) == releases()[NAME]
    for one in releases().values():
        assert not one.name.startswith(PREFIX)
        assert one.languages


def test_a_keyword_spotter_comes_from_its_own_release(tmp_path: Path) -> None:
    source = source_of("sherpa:kws-zipformer-zh-en-3M-2025-12-20")
    assert archive_of(source.folder).commit == SPOTTER_TAG
    lines = tomllib.loads(config_lines(tmp_path / source.folder))
    assert lines["wake"]["engine"] == "sherpa"
    assert lines["wake"]["options"]["model"] == source.folder


VOICES = "3dspeaker_speech_campplus_sv_en_voxceleb_16k"


@pytest.fixture
def voices(tmp_path: Path) -> Iterator[FakeHub]:
    """The page of releases with one model that recognises people."""
    require(have_sherpa(), "sherpa-onnx and onnx are not installed")
    (made,) = write_voice_model(tmp_path / "made").iterdir()
    files = {f"{VOICES_TAG}/{VOICES}.onnx": made.read_bytes()}
    with serving(FakeHub({REPOSITORY: files})) as fake:
        yield fake


def test_a_model_that_knows_voices_is_one_file(tmp_path: Path, voices: FakeHub) -> None:
    models = tmp_path / "models"
    pulled = _pull(models, voices, f"sherpa:{VOICES}")
    assert pulled == PullResult(models / VOICES, "speaker", True)
    assert {path.name for path in pulled.folder.iterdir()} == {f"{VOICES}.onnx", "source.json"}
    assert _pull(models, None, f"sherpa:{VOICES}") == PullResult(pulled.folder, "speaker", False)
    (listed,) = installed(models)
    assert (listed.name, listed.kind) == (f"sherpa:{VOICES}", "speaker")
    assert {result.verdict for result in check(listed)} == {"ok"}
    assert config_lines(pulled.folder) == f'[speakers]\nmodel = "sherpa:{VOICES}"'
    assert find_sherpa(models) == ()


def test_another_file_than_a_model_that_knows_voices_is_not_kept(
    tmp_path: Path, voices: FakeHub
) -> None:
    voices.repositories[REPOSITORY] = {f"{VOICES_TAG}/{VOICES}.onnx": b"<html>log in</html>"}
    with pytest.raises(ModelsError, match="is no ONNX file, or damaged"):
        _pull(tmp_path / "models", voices, f"sherpa:{VOICES}")
    assert not any((tmp_path / "models").iterdir())


MARKS = "punct-ct-transformer-zh-en-vocab272727-2024-04-12-int8"


def test_a_model_that_adds_punctuation_comes_from_its_own_release(tmp_path: Path) -> None:
    require(have_sherpa(), "sherpa-onnx and onnx are not installed")
    made = punctuation(tmp_path / "made") / "model.int8.onnx"
    folder = PREFIX + MARKS
    archive = packed({f"{folder}/{made.name}": made.read_bytes(), f"{folder}/tokens.json": b"[]"})
    models = tmp_path / "models"
    files = {f"{PUNCTUATION_TAG}/{folder}.tar.bz2": archive}
    with serving(FakeHub({REPOSITORY: files})) as fake:
        pulled = _pull(models, fake, f"sherpa:{MARKS}")
    assert pulled == PullResult(models / folder, "punctuation", True)
    assert {path.name for path in pulled.folder.iterdir()} == {made.name, "source.json"}
    assert _pull(models, None, f"sherpa:{MARKS}") == replace(pulled, is_new=False)
    (listed,) = installed(models)
    assert (listed.name, listed.kind) == (f"sherpa:{MARKS}", "punctuation")
    assert {result.verdict for result in check(listed)} == {"ok"}
    assert config_lines(pulled.folder) == f'[asr.options]\npunctuation = "{folder}"'
    assert find_sherpa(models) == ()
