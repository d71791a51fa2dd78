"""The choice of a model, the description of a file and the progress line need no hub."""

import io
import shutil
import struct
from pathlib import Path

import msgspec
import pytest

from engines.asr.whisper.decode import UNIVERSAL_PADDINGS
from engines.asr.whisper.model_info import Settings, paddings, read_notes
from server.models.convert import padding_of, write_notes
from server.models.errors import ModelsError
from server.models.hub import Hub
from server.models.inventory import (
    RECORD_FILE,
    find_installed,
    find_language_model,
    installed,
    read_record,
    remove,
)
from server.models.progress import (
    DownloadProgress,
    ProgressEvents,
    PullBytes,
    PullEvent,
    PullNote,
)
from server.models.pull import automatic
from server.models.source_spec import checkpoint_of, source_of
from serving.models.catalogue import require_entry
from serving.placement.benchmarks import ModelBenchmark
from serving.placement.ct2_header import Ct2WeightsHeader, UnreadableWeightsError, read_weights_file
from serving.placement.hardware import Gpu, Hardware
from tests.engines.runtime.model_files.tiny_gguf import gguf_bytes, write_gguf
from tests.server.models.fake_hub import weights_file
from tests.terminal import Terminal


@pytest.mark.parametrize(
    ("cores", "memory_gb", "vram_gb", "name"),
    [
        (2, 3.7, 0, "tiny"),
        (2, 64, 0, "tiny"),
        (4, 7.7, 0, "base"),
        (16, 3, 0, "tiny"),
        (8, 15, 0, "small"),
        (4, 16, 8, "large-v3-turbo"),
        (16, 128, 140, "large-v3-turbo"),
    ],
)
def test_auto_chooses_a_model_that_fits_the_machine(
    cores: int, memory_gb: float, vram_gb: float, name: str
) -> None:
    gpus = (Gpu("GPU", vram_gb, vram_gb, "8.9"),) if vram_gb else ()
    entry, why = automatic(Hardware(cores, memory_gb, gpus))
    assert entry.name == name
    assert ("by its memory; it was not timed there yet" in why) == bool(gpus)
    assert ("if a sentence takes more than 800 ms, the start takes a smaller one" in why) == bool(
        gpus
    )


TURBO, SMALL = "faster-whisper-large-v3-turbo", "faster-whisper-small"
OLD_GPU = Hardware(4, 16.0, (Gpu("GTX 1060", 3.0, 2.9, "6.1"),))


@pytest.mark.parametrize(
    ("took_ms", "device", "name", "said"),
    [
        ({TURBO: 400.0}, "GTX 1060", "large-v3-turbo", ": 400 ms per utterance, measured"),
        ({TURBO: 4100.0, SMALL: 420.0}, "GTX 1060", "small", f"beyond 800 ms: {TURBO} takes 4100"),
        ({TURBO: 4100.0}, "GTX 1060", "small", "it was not timed there yet; too slow beyond"),
        ({TURBO: 4100.0}, "H100", "large-v3-turbo", "it was not timed there yet. The first start"),
    ],
)
def test_auto_chooses_by_times_measured_on_this_gpu(
    took_ms: dict[str, float], device: str, name: str, said: str
) -> None:
    measured = {folder: ModelBenchmark("", ms, device=device) for folder, ms in took_ms.items()}
    entry, why = automatic(OLD_GPU, measured)
    assert entry.name == name
    assert said in why


def test_auto_chooses_by_times_measured_on_this_cpu() -> None:
    measured = {SMALL: ModelBenchmark("", 600.0, device="2 cores")}
    assert automatic(Hardware(2, 3.7), measured)[0].name == "small"


@pytest.mark.parametrize(
    ("wanted", "repository", "folder"),
    [
        ("turbo", "mobiuslabsgmbh/faster-whisper-large-v3-turbo", "faster-whisper-large-v3-turbo"),
        ("openai/whisper-tiny", "Systran/faster-whisper-tiny", "faster-whisper-tiny"),
        ("a-b/c.d", "a-b/c.d", "a-b--c.d"),
        ("https://hub/Systran/faster-whisper-tiny", "Systran/faster-whisper-tiny",
         "faster-whisper-tiny"),
        ("https://hub/openai/whisper-tiny", "openai/whisper-tiny", "openai--whisper-tiny"),
        ("https://hub/o/r/tree/v2", "o/r", "o--r"),
    ],
)  # fmt: skip
def test_the_forms_of_a_model_name(wanted: str, repository: str, folder: str) -> None:
    source = source_of(wanted)
    assert (source.repository, source.folder) == (repository, folder)
    assert source.endpoint == ("https://hub" if "://" in wanted else "")
    assert source.revision == ("v2" if wanted.endswith("v2") else "main")


@pytest.mark.parametrize(
    "wrong",
    [
        "https://hub",
        "https://hub/x",
        "https://hub/../..",
        "https://hub/.hidden/r",
        "ftp://hub/o/r",
        "file:///a/b",
    ],
)
def test_addresses_that_are_not_a_model_page_are_refused(wrong: str) -> None:
    with pytest.raises(ModelsError, match="expected https://HUB/ORGANISATION/REPOSITORY"):
        source_of(wrong)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(ModelsError, match="a token goes into HF_TOKEN") as caught:
        Hub(endpoint="https://user:secret@hub")
    assert "secret" not in str(caught.value)


def test_checkpoints_of_known_models_have_names() -> None:
    assert checkpoint_of(require_entry("wis-tiny")).repository == "openai/whisper-tiny"
    entry = require_entry("large-v2-multi-hans")
    assert checkpoint_of(entry).repository == entry.repository


@pytest.mark.many
def test_a_weights_file_describes_itself(tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    whole = weights_file(1000)
    file.write_bytes(whole)
    assert read_weights_file(file) == Ct2WeightsHeader("WhisperSpec", "float16", 51_865)
    for cut in range(len(whole) - 4):  # at its end is the list of aliases
        file.write_bytes(whole[:cut])
        with pytest.raises(UnreadableWeightsError):
            read_weights_file(file)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04 a zip, as torch saves",
        b"\xff" * 100,
        struct.pack("<IH", 6, 60_000) + b"x" * 99,
        weights_file().replace(struct.pack("<II", 3, 1), struct.pack("<II", 3, 2**31)),
    ],
)
def test_files_of_other_formats_are_recognised(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    file.write_bytes(content)
    with pytest.raises(UnreadableWeightsError, match=r"model\.bin is not a CTranslate2 model"):
        read_weights_file(file)
    with pytest.raises(UnreadableWeightsError, match="No such file"):
        read_weights_file(tmp_path / "nothing")


def test_installed_models_are_listed_by_kind(tmp_path: Path) -> None:
    assert installed(tmp_path / "nowhere") == ()
    for folder, files in {
        "faster-whisper-tiny": {"config.json": b'{"lang_ids": [1]}', "tokenizer.json": b"{}",
                                "model.bin": weights_file()},
        "ours": {"config.json": b'{"lang_ids": [1, 2]}', "tokenizer.json": b"{}",
                 "model.bin": weights_file()},
        "marian": {"config.json": b"{}", "tokenizer.json": b"{}",
                   "model.bin": weights_file(spec="MarianSpec")},
        "no-tokenizer": {"config.json": b"{}", "model.bin": weights_file()},
        "openai--whisper-tiny": {"model.safetensors": b"w"},
        "fine-tune": {"pytorch_model-00001-of-00002.bin": b"w"},
        ".faster-whisper-base.partial": {"model.bin.abc.part": b"w"},
        ".git": {"model.bin": b"w"},
        "voices": {"a.onnx": b"w"},
    }.items():  # fmt: skip
        (tmp_path / folder).mkdir()
        for name, data in files.items():
            (tmp_path / folder / name).write_bytes(data)
    (tmp_path / "README").write_text("no folder")
    found = {one.path.name: (one.name, one.kind, one.languages) for one in installed(tmp_path)}
    assert found == {
        "faster-whisper-tiny": ("tiny", "model", "99 languages"),
        "ours": ("ours", "model", "2 languages"),
        "marian": ("marian", "broken", ""),
        "no-tokenizer": ("no-tokenizer", "broken", ""),
        "openai--whisper-tiny": ("openai--whisper-tiny", "checkpoint", ""),
        "fine-tune": ("fine-tune", "checkpoint", ""),
        ".faster-whisper-base.partial": ("base", "partial", ""),
    }
    assert find_installed(tmp_path, "Systran/faster-whisper-tiny").name == "tiny"
    assert find_installed(tmp_path, "base").kind == "partial"
    with pytest.raises(ModelsError, match=r"no model 'turbo' in .*; there is: marian, "):
        find_installed(tmp_path, "turbo")


@pytest.mark.parametrize(("file", "content"), [("config.json", b"[]"), ("model.bin", b"")])
def test_a_broken_model_is_reported_with_its_file(
    file: str, content: bytes, tmp_path: Path
) -> None:
    whole = {"config.json": b"{}", "tokenizer.json": b"{}", "model.bin": weights_file()}
    (tmp_path / "ours").mkdir()
    for name, data in (whole | {file: content}).items():
        (tmp_path / "ours" / name).write_bytes(data)
    (one,) = installed(tmp_path)
    assert one.kind == "broken"
    assert file in one.problem


def test_an_ambiguous_name_means_the_folder_and_then_the_best_model(tmp_path: Path) -> None:
    """`rm` removes the folder that is found here."""
    whole = {"config.json": b"{}", "tokenizer.json": b"{}", "model.bin": weights_file()}
    for folder, files in {
        ".faster-whisper-tiny.partial": {"a.part": b"w"},
        "Systran--faster-whisper-tiny": {"model.bin": b"broken"},
        "faster-whisper-tiny": whole,
        "tiny": {"a.pt": b"w"},
    }.items():
        (tmp_path / folder).mkdir()
        for name, data in files.items():
            (tmp_path / folder / name).write_bytes(data)
    for expected in ("tiny", "faster-whisper-tiny", "Systran--faster-whisper-tiny"):
        assert find_installed(tmp_path, "tiny").path.name == expected
        shutil.rmtree(tmp_path / expected)
    assert find_installed(tmp_path, "tiny").kind == "partial"


def test_a_damaged_record_is_reported(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None
    (tmp_path / RECORD_FILE).write_bytes(b"{")
    with pytest.raises(ModelsError, match=r"source\.json"):
        read_record(tmp_path)


def test_progress_on_a_terminal_is_a_progress_bar() -> None:
    out, now_s = Terminal(), 0.0
    progress = DownloadProgress(out, lambda: now_s)
    progress.start(4_000_000, 0)
    now_s = 1.0
    progress.add(1_000_000)
    now_s = 1.1
    progress.add(1)  # too soon to draw again
    now_s = 2.0
    progress.add(999_999)
    assert out.drawn() == [
        "[........................]   0% of 4 MB, 0.0 MB/s",
        "[######..................]  25% of 4 MB, 1.0 MB/s, 0:03 left",
        "[############............]  50% of 4 MB, 1.0 MB/s, 0:02 left",
    ]


def test_each_large_file_of_several_has_a_bar() -> None:
    out, now_s = Terminal(), 0.0
    progress = DownloadProgress(out, lambda: now_s)
    for total_bytes in (1_000_000, 8_000_000, 10_000_000):
        progress.file_bytes(0, total_bytes)
        now_s += 2.0
        progress.file_bytes(total_bytes // 2, total_bytes)
        now_s += 2.0
        progress.file_bytes(total_bytes, total_bytes)
    drawn = [line.split("]")[1] for line in out.drawn()]
    assert drawn == [
        "   0% of 8 MB, 0.0 MB/s",
        "  50% of 8 MB, 2.0 MB/s, 0:02 left",
        " 100% of 8 MB, 2.0 MB/s",
        " 100% of 8 MB, 2.0 MB/s",
        "   0% of 10 MB, 0.0 MB/s",
        "  50% of 10 MB, 2.5 MB/s, 0:02 left",
        " 100% of 10 MB, 2.5 MB/s",
        " 100% of 10 MB, 2.5 MB/s",
    ]


def test_progress_elsewhere_is_a_few_lines() -> None:
    out = io.StringIO()
    progress = DownloadProgress(out, lambda: 0.0)
    progress.start(1_000_000, 300_000)
    for _ in range(70):
        progress.add(10_000)
    progress.finish()
    lines = [line.split(",")[0].strip() for line in out.getvalue().splitlines()]
    assert lines == ["300 kB were downloaded before", "50% of 1 MB", "75% of 1 MB", "100% of 1 MB"]


def test_unparsable_addresses_are_refused() -> None:
    with pytest.raises(ModelsError, match="is not a valid address: Invalid IPv6 URL"):
        source_of("http://[x/organisation/name")
    for endpoint in ("http://[x", "http://hub:hush"):
        with pytest.raises(ModelsError, match=r"cannot be read as a URL$"):
            Hub(endpoint)


@pytest.mark.parametrize(
    ("folder", "padding"),
    [
        ("large-v2-multi-hans.checkpoint", "nopad"),
        ("large-v2-turbo-multi-hans.checkpoint", "nopad"),
        ("openai--whisper-large-v2", None),
        ("somebodys", None),
    ],
)
def test_the_features_that_the_weights_were_trained_with_are_known(
    folder: str, padding: str | None, tmp_path: Path
) -> None:
    found = padding_of(tmp_path / folder)
    assert found == padding
    write_notes(tmp_path, found)
    notes = read_notes(tmp_path, Settings(model=str(tmp_path)))
    assert paddings(notes) == (*UNIVERSAL_PADDINGS, *([padding] if padding else []))


def test_progress_for_a_program_is_one_event_per_line() -> None:
    out, now_s = io.StringIO(), 0.0
    progress = ProgressEvents(out, lambda: now_s)
    progress.note("about to start")
    progress.start(4_000_000, 1_000_000)
    now_s = 2.0
    progress.add(1_000_000)
    progress.add(1)  # too soon for another event
    now_s = 4.0
    progress.add(1_999_999)
    progress.finish()
    events = [msgspec.json.decode(line, type=PullEvent) for line in out.getvalue().splitlines()]
    assert events == [
        PullNote("about to start"),
        PullNote("1 MB were downloaded before"),
        PullBytes(1_000_000, 4_000_000, 0),
        PullBytes(2_000_000, 4_000_000, 500_000),
        PullBytes(4_000_000, 4_000_000, 750_000),
        PullBytes(4_000_000, 4_000_000, 750_000),
    ]


def test_language_models_are_files_or_folders(tmp_path: Path) -> None:
    write_gguf(tmp_path / "SmolLM2-135M-Instruct-GGUF" / "SmolLM2-135M-Instruct.Q4_1.gguf")
    write_gguf(tmp_path / "bare.gguf")
    for part in (1, 2):
        write_gguf(tmp_path / f"big-0000{part}-of-00002.gguf")
    found = {folder.name: folder for folder in installed(tmp_path)}
    assert set(found) == {"smollm2-135m", "bare", "big-00001-of-00002"}
    assert {(folder.kind, folder.weight_type) for folder in found.values()} == {("llm", "Q8_0")}
    sizes = {name: folder.size_bytes for name, folder in found.items()}
    assert sizes["big-00001-of-00002"] == 2 * sizes["bare"]
    for name in ("bare", "bare.gguf"):
        assert find_language_model(tmp_path, name) == tmp_path / "bare.gguf"
    assert find_language_model(tmp_path, "other") is None
    for name in ("bare", "big-00001-of-00002"):
        remove(find_installed(tmp_path, name))
    assert [path.name for path in tmp_path.iterdir()] == ["SmolLM2-135M-Instruct-GGUF"]


def test_a_language_model_that_lies_is_broken(tmp_path: Path) -> None:
    (tmp_path / "short.gguf").write_bytes(gguf_bytes()[:-1])
    (tmp_path / "lying.gguf").write_bytes(gguf_bytes(shape=(64, 2**40)))
    short, lying = find_installed(tmp_path, "short"), find_installed(tmp_path, "lying")
    assert (short.kind, lying.kind) == ("broken", "broken")
    assert "1 bytes of the tensor 'output.weight' missing" in short.problem
    assert "truncated" in lying.problem
    assert find_language_model(tmp_path, "short") is None
