"""The engine without CTranslate2, cancelled requests, and unusual checkpoints."""

import json
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from core.errors import ConfigError, EngineMissing
from engines.asr.whisper_torch.batching.engine_thread import DeviceTask, DeviceThread, GenerateTask
from engines.asr.whisper_torch.batching.kv_cache import NewRow
from engines.asr.whisper_torch.batching.word_alignment import dynamic_time_warping
from engines.asr.whisper_torch.checkpoint import read_shape, read_special
from engines.asr.whisper_torch.network.device import DeviceModel
from engines.asr.whisper_torch.network.weights import read_tensors
from engines.base import AsrItem, AsrOptions
from engines.registry import load
from tests.engines.asr.whisper_torch import checkpoints
from tests.engines.asr.whisper_torch.driver import clips, encoded_windows, mel, opened
from tests.shared import ROOT

pytestmark = pytest.mark.live

SPEAK = """
import sys
sys.modules["ctranslate2"] = sys.modules["faster_whisper"] = None
from engines.base import AsrItem, AsrOptions
from engines.registry import load
from tests.engines.asr.whisper_torch.driver import clips
engine = load("asr", "whisper_torch", {"model": sys.argv[1]})
(result,) = engine.decode([AsrItem("a", clips()[0], True, AsrOptions("en", timestamps="word"))])
engine.close()
print(result.text, len(result.words))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.nano(tmp_path_factory.mktemp("nano"))


@pytest.fixture(scope="module")
def device(folder: Path) -> DeviceModel:
    return opened(folder, capacity=6)


def test_the_engine_needs_no_ctranslate2(folder: Path) -> None:
    command = [sys.executable, "-c", SPEAK, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "turn on the kitchen lights 5", done.stderr[-2000:]


def writing(encoded: torch.Tensor, new: NewRow) -> Generator[DeviceTask, Any, Any]:
    return (yield GenerateTask(encoded, [new]))


def test_a_cancelled_request_s_rows_are_free_at_the_next_step(device: DeviceModel) -> None:
    """The test runs the turns of the loop: a request that waits for room has it in the very next
    one."""
    (encoded,) = encoded_windows(device, [mel(device, clips()[0], 400)])
    beam, greedy = NewRow((561, 567), 40, beam_size=5), NewRow((561, 567), 40)
    told: dict[str, Any] = {}

    def done(name: str) -> Any:
        return lambda result, error: told.update({name: (result, error)})

    with torch.inference_mode():
        loop = DeviceThread(device.rows, device.launcher, device.weights.device)
        first = loop.submit(writing(encoded, beam), done("first"))
        loop.submit(writing(encoded, greedy), done("compare"))
        loop.submit(writing(encoded, beam), done("waiting"))
        loop.run_once()
        assert [slot_range.first for slot_range in device.rows.slot_ranges] == [0, 5]
        loop.cancel(first)
        loop.run_once()
        assert sorted(slot_range.first for slot_range in device.rows.slot_ranges) == [0, 5]
        while len(told) < 2:
            loop.run_once()
        alone = DeviceThread(device.rows, device.launcher, device.weights.device)
        for name, new in (("compare", greedy), ("waiting", beam)):
            alone.submit(writing(encoded, new), done(f"{name} alone"))
            while f"{name} alone" not in told:
                alone.run_once()
    assert "first" not in told
    for name in ("compare", "waiting"):
        (mine,), (its,) = told[name][0], told[f"{name} alone"][0]
        assert mine.tokens == its.tokens
    assert not device.rows.slot_ranges


def test_weights_in_several_files_are_joined(folder: Path, tmp_path: Path) -> None:

    whole = read_tensors(folder)
    halves = [dict(list(whole.items())[::2]), dict(list(whole.items())[1::2])]
    names: dict[str, str] = {}
    for number, half in enumerate(halves):
        file = f"model-{number}.safetensors"
        save_file(
            {f"model.{name}": one.contiguous() for name, one in half.items()}, tmp_path / file
        )
        names |= {f"model.{name}": file for name in half}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    found = read_tensors(tmp_path)
    assert found.keys() == whole.keys()
    assert all(torch.equal(found[name], whole[name]) for name in whole)
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"model-1\.safetensors"):
        read_tensors(tmp_path)


def test_values_missing_in_an_old_checkpoint_are_found_or_named(
    folder: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "old"))
    said = json.loads((copy / "generation_config.json").read_bytes())
    del said["no_timestamps_token_id"]
    (copy / "generation_config.json").write_text(json.dumps(said))
    assert read_special(copy, read_shape(copy)) == read_special(folder, read_shape(folder))
    (copy / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"no_timestamps_token_id, .*<\|notimestamps\|>"):
        read_special(copy, read_shape(copy))
    (copy / "vocab.json").touch()
    with pytest.raises(EngineMissing, match=r"no tokenizer\.json .*from vocab\.json and merges"):
        load("asr", "whisper_torch", {"model": str(copy)})


def test_alignment_heads_beyond_the_decoder_are_left_out(folder: Path, tmp_path: Path) -> None:
    """A distilled checkpoint may contain its teacher's: two layers, and heads up to layer 25."""
    copy, shape = Path(shutil.copytree(folder, tmp_path / "distilled")), read_shape(folder)
    last = shape.decoder_layers - 1
    later_half = [(last, head) for head in range(shape.decoder_heads)]
    for heads, kept in (
        ([[7, 0], [25, 6]], later_half),
        ([[last, shape.decoder_heads]], later_half),
        ([[7, 0], [last, 1], [-1, 0]], [(last, 1)]),
    ):
        rewrite(copy, alignment_heads=heads)
        assert list(read_special(copy, shape).alignment_heads) == kept
    rewrite(copy, alignment_heads=[[7, 0], [25, 6]])
    engine = load("asr", "whisper_torch", {"model": str(copy)})
    (result,) = engine.decode([AsrItem("a", clips()[0], True, AsrOptions(timestamps="word"))])
    engine.close()
    words = [word.text.strip() for word in result.words]
    assert words == ["turn", "on", "the", "kitchen", "lights"]


def test_languages_are_read_from_the_tokenizer_if_nothing_else_lists_them(tmp_path: Path) -> None:
    folder = checkpoints.random(tmp_path / "random", layers=2, width=192)
    listed = read_special(folder, read_shape(folder)).languages
    rewrite(folder, lang_to_id=None)
    assert read_special(folder, read_shape(folder)).languages == tuple(sorted(listed)) != ()
    engine = load("asr", "whisper_torch", {"model": str(folder)})
    (result,) = engine.decode([AsrItem("a", clips()[0], True)])
    engine.close()
    assert result.language in engine.info.languages


def rewrite(folder: Path, **said: Any) -> None:
    """Changes fields of the generation config."""
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | said))


def test_the_cheapest_path_equals_one_computed_cell_by_cell() -> None:
    """Integer costs make ties, which are covered too."""
    chance = np.random.default_rng(0)
    for tokens, positions in ((1, 1), (1, 9), (9, 1), (7, 30), (20, 11)):
        cost = chance.integers(0, 3, (tokens, positions)).astype(np.float32)
        assert dynamic_time_warping(cost) == cell_by_cell(cost)


def cell_by_cell(cost: Any) -> list[tuple[int, int]]:
    tokens, positions = cost.shape
    total = np.full((tokens + 1, positions + 1), np.inf, np.float32)
    total[0, 0] = 0
    came = np.zeros((tokens + 1, positions + 1), np.int8)
    for i in range(1, tokens + 1):
        for j in range(1, positions + 1):
            ways = (total[i - 1, j - 1], total[i - 1, j], total[i, j - 1])
            best = 0 if ways[0] < ways[1] and ways[0] < ways[2] else 1 if ways[1] < ways[2] else 2
            total[i, j], came[i, j] = cost[i - 1, j - 1] + ways[best], best
    came[0, :], came[:, 0] = 2, 1
    path, i, j = [], tokens, positions
    while i > 0 or j > 0:
        path.append((i - 1, j - 1))
        i, j = i - int(came[i, j] != 2), j - int(came[i, j] != 1)
    return path[::-1]
