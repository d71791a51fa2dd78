"""Converted checkpoints of our own tiny Whisper give the same transcripts as the original."""

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory

import pytest
from msgspec.json import decode, encode

from engines.base import AsrItem
from engines.registry import load
from server.models.convert import LIBRARIES
from server.models.inventory import find_installed, read_record
from tests.engines.nano import NANO
from tests.environments import make_environment
from tests.server.models.cli import earshot, last_line
from tests.server.models.fake_hub import FakeHub, serving
from tests.shared import NEEDS_SHARED, ROOT, SHARED
from tests.speech import say

pytestmark = pytest.mark.real

COMMANDS = ("turn on the kitchen lights", "what time is it", "open the garage door")

TO_OPENAI = """
import json, sys, torch
from pathlib import Path
from safetensors.torch import load_file
source, target, script = map(Path, sys.argv[1:])
sys.path.insert(0, str(script.parent.parent))
from engines.runtime.model_files.convert_whisper import NAME_REPLACEMENTS
config, state = json.loads((source / "config.json").read_text()), {}
for name, value in load_file(source / "model.safetensors").items():
    if name != "proj_out.weight":
        name = name.removeprefix("model.")
        for openai, transformers in reversed(NAME_REPLACEMENTS):
            name = name.replace(transformers, openai)
        state[name] = value
audio, text = ("n_audio_", "encoder"), ("n_text_", "decoder")
dims = {"n_vocab": config["vocab_size"], "n_mels": config["num_mel_bins"],
        "n_audio_ctx": config["max_source_positions"], "n_text_ctx": config["max_target_positions"]}
for prefix, part in (audio, text):
    dims[prefix + "state"] = config["d_model"]
    dims[prefix + "head"] = config[part + "_attention_heads"]
    dims[prefix + "layer"] = config[part + "_layers"]
torch.save({"dims": dims, "model_state_dict": state}, target / "ours.pt")
"""


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    """An interpreter with torch: this one, or one of an environment made for these tests."""
    if all(find_spec(library) for library in LIBRARIES):
        yield sys.executable
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["optional-dependencies"]["torch"],
        f"ctranslate2=={version('ctranslate2')}",
    ]
    with TemporaryDirectory(prefix="earshot-torch-") as folder:
        yield str(make_environment(Path(folder), *wanted))


@pytest.fixture(scope="module")
def checkpoint() -> Path:
    folder = SHARED / "models" / "whisper-nano" / "hf" if SHARED else None
    if folder is None or not folder.is_dir():
        pytest.skip(f"{NEEDS_SHARED}/models/whisper-nano/hf")
    return folder


def _heard(folder: Path) -> list[str]:
    model = load("asr", "faster_whisper", {"model": str(folder), "min_confidence": 0})
    try:
        clips = [say(command, lead_ms=200, tail_ms=500) for command in COMMANDS]
        items = [AsrItem(str(index), pcm, is_final=True) for index, pcm in enumerate(clips)]
        return [result.text.lower().strip(" .?") for result in model.decode(items)]
    finally:
        model.close()


def _convert(models: Path, python: str, source: str, name: str, quantization: str) -> Path:
    wanted = ("convert", source, name, "--quantization", quantization, "--python", python)
    assert last_line(models, "", *wanted) == f"made {models / name}"
    assert [path.name for path in models.glob(".*")] == []
    return models / name


@pytest.mark.parametrize(
    ("quantization", "weight_type"),
    [
        ("float32", "float32"),
        ("float16", "float16"),
        ("int8", "int8"),
        ("int8_float16", "int8"),
    ],
)
def test_a_converted_model_gives_the_same_transcript(
    quantization: str, weight_type: str, python: str, checkpoint: Path, tmp_path: Path
) -> None:
    folder = _convert(tmp_path, python, str(checkpoint), "ours", quantization)
    assert _heard(folder) == _heard(NANO) == list(COMMANDS)
    one = find_installed(tmp_path, "ours")
    assert (one.kind, one.weight_type, one.languages) == ("model", weight_type, "English")
    record = read_record(folder)
    assert record is not None
    assert (record.source, record.quantization) == (str(checkpoint), quantization)
    assert "checksums match" in earshot(tmp_path, "", "doctor", "ours")[1]


def _with_older_tokenizer(folder: Path) -> None:
    """Writes its tokenizer as the three files that `tokenizer.json` replaced."""
    whole = decode((folder / "tokenizer.json").read_bytes())
    (folder / "tokenizer.json").unlink()
    added = whole["added_tokens"]
    merges = [one if isinstance(one, str) else " ".join(one) for one in whole["model"]["merges"]]
    decoder = {str(token.pop("id")): token for token in added}
    older = {"tokenizer_class": "WhisperTokenizer", "added_tokens_decoder": decoder}
    older |= dict.fromkeys(("bos_token", "eos_token", "unk_token"), added[0]["content"])
    (folder / "vocab.json").write_bytes(encode(whole["model"]["vocab"]))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_bytes(encode(older))


@pytest.mark.parametrize("is_older", [False, True])
def test_an_openai_checkpoint_is_converted(
    is_older: bool, python: str, checkpoint: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.checkpoint"
    mine.mkdir()
    for name in ("tokenizer.json", "generation_config.json", "preprocessor_config.json"):
        (mine / name).write_bytes((checkpoint / name).read_bytes())
    if is_older:
        _with_older_tokenizer(mine)
    script = ROOT / "engines" / "convert_whisper.py"
    run([python, "-c", TO_OPENAI, str(checkpoint), str(mine), str(script)], check=True)
    folder = _convert(tmp_path, python, mine.name, "mine", "int8")
    assert _heard(folder) == list(COMMANDS)


def test_a_fine_tune_with_older_tokenizer_files_and_trainer_state_is_converted(
    python: str, checkpoint: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.checkpoint"
    mine.mkdir()
    for file in checkpoint.iterdir():
        (mine / file.name).write_bytes(file.read_bytes())
    (mine / "optimizer.pt").write_bytes(b"to go on training")
    _with_older_tokenizer(mine)
    folder = _convert(tmp_path, python, mine.name, "mine", "float16")
    assert _heard(folder) == list(COMMANDS)


def test_a_known_name_is_pulled_first(python: str, checkpoint: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    wanted = ("convert", "tiny", "tiny-int8", "--quantization", "int8", "--python", python)
    with serving(FakeHub({"openai/whisper-tiny": files})) as fake:
        assert last_line(tmp_path, fake.url, *wanted) == f"made {tmp_path / 'tiny-int8'}"
    assert _heard(tmp_path / "tiny-int8") == list(COMMANDS)
    record = read_record(tmp_path / "tiny-int8")
    assert record is not None
    assert (record.source, record.revision) == ("openai/whisper-tiny", fake.commit)
    assert "openai--whisper-tiny" in earshot(tmp_path, "", "list")[1]


def test_a_file_that_is_not_a_checkpoint_is_refused(python: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_bytes(b'{"model_type": "whisper"}')
    (tmp_path / "mine" / "model.safetensors").write_bytes(b"nonsense")
    code, _, err = earshot(tmp_path, "", "convert", "mine", "ours", "--python", python)
    assert code == 1
    assert f"converting {tmp_path / 'mine'} failed" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
