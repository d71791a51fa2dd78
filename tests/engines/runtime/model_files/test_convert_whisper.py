"""The conversion of a Whisper checkpoint: names of weights, alignment heads, the choice of file,
progress."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ctranslate2.specs import model_spec

from engines.runtime.model_files import convert_whisper
from server.models.convert import show_progress
from server.models.progress import DownloadProgress
from tests.terminal import Terminal


@pytest.mark.parametrize(
    ("openai", "transformers"),
    [
        ("encoder.positional_embedding", "encoder.embed_positions.weight"),
        ("encoder.conv1.weight", "encoder.conv1.weight"),
        ("encoder.blocks.0.attn.query.weight", "encoder.layers.0.self_attn.q_proj.weight"),
        ("encoder.blocks.0.attn.key.weight", "encoder.layers.0.self_attn.k_proj.weight"),
        ("encoder.blocks.0.attn.value.bias", "encoder.layers.0.self_attn.v_proj.bias"),
        ("encoder.blocks.0.attn.out.bias", "encoder.layers.0.self_attn.out_proj.bias"),
        ("encoder.blocks.0.attn_ln.weight", "encoder.layers.0.self_attn_layer_norm.weight"),
        ("encoder.blocks.11.mlp.0.weight", "encoder.layers.11.fc1.weight"),
        ("encoder.blocks.11.mlp.2.bias", "encoder.layers.11.fc2.bias"),
        ("encoder.blocks.11.mlp_ln.bias", "encoder.layers.11.final_layer_norm.bias"),
        ("encoder.ln_post.weight", "encoder.layer_norm.weight"),
        ("decoder.token_embedding.weight", "decoder.embed_tokens.weight"),
        ("decoder.positional_embedding", "decoder.embed_positions.weight"),
        ("decoder.blocks.3.cross_attn.query.weight", "decoder.layers.3.encoder_attn.q_proj.weight"),
        ("decoder.blocks.3.cross_attn.out.bias", "decoder.layers.3.encoder_attn.out_proj.bias"),
        ("decoder.blocks.3.cross_attn_ln.bias", "decoder.layers.3.encoder_attn_layer_norm.bias"),
        ("decoder.ln.weight", "decoder.layer_norm.weight"),
    ],
)
def test_names_are_converted(openai: str, transformers: str) -> None:
    assert convert_whisper.transformers_name(openai) == transformers


@pytest.mark.parametrize(("layers", "is_kept"), [(32, True), (2, False)])
def test_alignment_heads_of_removed_layers_are_dropped(
    layers: int, is_kept: bool, tmp_path: Path
) -> None:
    file = tmp_path / "generation_config.json"
    file.write_text(json.dumps({"alignment_heads": [[10, 12], [31, 1]], "suppress_tokens": [1]}))
    convert_whisper.drop_invalid_alignment_heads(file, layers)
    kept = json.loads(file.read_text())
    assert ("alignment_heads" in kept) == is_kept
    assert kept["suppress_tokens"] == [1]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"whisper.pt"}, "whisper.pt"),
        ({"model.safetensors", "optimizer.pt", "scheduler.pt"}, None),
        ({"pytorch_model-00001-of-00002.bin", "optimizer.pt"}, None),
        (set(), None),
    ],
)
def test_training_state_is_not_an_openai_checkpoint(
    files: set[str], found: str | None, tmp_path: Path
) -> None:
    for name in files:
        (tmp_path / name).touch()
    file = convert_whisper.openai_file(tmp_path)
    assert (file.name if file else None) == found


class Layer(model_spec.LayerSpec):  # type: ignore[misc]
    """Weights that are quantized, weights that are not, and the same weights again."""

    def __init__(self, value: float) -> None:
        self.weight = np.full((1000, 250), value, np.float32)
        self.weight_scale = model_spec.OPTIONAL
        self.bias = np.full(1000, value, np.float32)


class Model(model_spec.ModelSpec):  # type: ignore[misc]
    """A model of CTranslate2's own classes, without torch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [Layer(1.0), Layer(2.0), Layer(1.0)]

    @property
    def name(self) -> str:
        return "TestSpec"


def without_lasting_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the wrapped methods of CTranslate2 restored after the test."""
    for kind, name in (
        (model_spec.ModelSpec, "optimize"),
        (model_spec.ModelSpec, "save"),
        (model_spec.Variable, "to"),
        (model_spec.NumpyVariable, "to_bytes"),
        (model_spec.PyTorchVariable, "to_bytes"),
    ):
        monkeypatch.setattr(kind, name, getattr(kind, name))


def load_with_transformers(
    weights: list[str], total: int, progress: convert_whisper.Progress
) -> None:
    """Loads weights as transformers does, which asks a hook for the progress bar of the loop."""
    hooks: list[Any] = []
    convert_whisper.count_loading(SimpleNamespace(set_tqdm_hook=hooks.append), total, progress)
    (hook,) = hooks
    assert hook(lambda items, desc: desc, ([],), {"desc": "Some other bar"}) == "Some other bar"
    assert list(hook(None, (weights,), {"desc": convert_whisper.LOADING_BAR})) == weights


def test_an_older_transformers_loads_without_being_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    convert_whisper.count_loading(SimpleNamespace(), 1500, convert_whisper.Progress())
    assert not capsys.readouterr().out


def test_each_stage_counts_the_bytes_that_it_handles_up_to_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lasting_change(monkeypatch)
    monkeypatch.setattr(convert_whisper, "REPORT_S", 0)
    monkeypatch.setattr(convert_whisper, "READ_BYTES", 400)
    (tmp_path / "model-1.safetensors").write_bytes(bytes(1000))
    (tmp_path / "model-2.safetensors").write_bytes(bytes(500))
    (tmp_path / "optimizer.pt").write_bytes(bytes(9000))
    progress = convert_whisper.Progress()
    convert_whisper.count_weights(model_spec, progress)
    total = convert_whisper.read_weights(tmp_path, progress)
    progress.start("prepare")
    load_with_transformers(["embedding", "layer", "norm"], total, progress)
    model = Model()
    model.validate()
    model.optimize(quantization="int8")
    model.save(str(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    reports: dict[str, list[tuple[int, int]]] = {}
    for _, stage, done, all_bytes in map(str.split, lines):
        reports.setdefault(stage, []).append((int(done), int(all_bytes)))
    assert reports.pop("read") == [(done, 1500) for done in (0, 400, 800, 1000, 1400, 1500, 1500)]
    assert reports.pop("prepare") == reports.pop("compare") == [(0, 0)]
    assert reports.pop("load") == [(done, 1500) for done in (0, 500, 1000, 1500, 1500)]
    layer_bytes = 1000 * 250 * 4 + 1000 * 4  # the third layer is an alias of the first one
    assert reports["quantize"][0] == (0, 2 * layer_bytes)
    written_bytes = reports["write"][0][1]
    assert 2 * 1000 * 250 < written_bytes < (tmp_path / "model.bin").stat().st_size
    assert list(reports) == ["quantize", "write"]
    for stage, shown in reports.items():
        counted = [done for done, _ in shown]
        assert counted == sorted(counted)
        assert len(set(counted)) >= 3, stage
        assert shown[-1] == (shown[0][1], shown[0][1])
    # The last weight was counted when it was written, not only when the stage was over.
    assert reports["write"][-2] == reports["write"][-1]

    out = Terminal()
    show_progress([*lines, "a line of some library"], DownloadProgress(out, lambda: 0.0))
    finished = [text for text in out.drawn() if "100%" in text]
    assert len(finished) == 4
    for title in ("reading", "starting", "loading", "looking", "changing", "writing"):
        assert title in out.getvalue()


def test_a_converter_that_fails_leaves_its_bar_in_a_line_of_its_own() -> None:
    out = Terminal()
    lines = ["progress write 0 8000000", "progress write 4000000 8000000"]
    show_progress(lines, DownloadProgress(out, lambda: 0.0))
    assert re.search(r" 50% of 8 MB, .* MB/s\n$", out.getvalue())
