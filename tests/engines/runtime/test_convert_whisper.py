"""The conversion of a Whisper checkpoint: names of weights, alignment heads, the choice of file."""

import json
from pathlib import Path

import pytest

from engines.runtime import convert_whisper


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
