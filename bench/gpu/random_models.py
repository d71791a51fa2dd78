"""Whisper in its real shapes with random weights, as a checkpoint for Earshot and transformers."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from engines.asr.whisper_torch.checkpoint import ModelShape

SHAPES: Mapping[str, ModelShape] = {
    "turbo": ModelShape(128, 1280, 32, 20, 4, 20, 51866),
    "large-v3": ModelShape(128, 1280, 32, 20, 32, 20, 51866),
    "large-v2": ModelShape(80, 1280, 32, 20, 32, 20, 51865),
    "medium": ModelShape(80, 1024, 24, 16, 24, 16, 51865),
    "base": ModelShape(80, 512, 6, 8, 6, 8, 51865),
    "toy": ModelShape(80, 64, 2, 2, 2, 2, 51865),
}
"Sizes of OpenAI's models by name."

END, START, NO_TIMESTAMPS = 50257, 50258, 50363
_WEIGHT_SPREAD = 0.02
_CROSS_ATTENTION_GAIN = 2.0
"Factor on the initial weights of the decoder's queries and keys for the audio."
_EMBEDDING_SIZE_SPREAD = 0.2
"Spread of the token embeddings' sizes, in natural logarithms."


def config_of(shape: ModelShape) -> dict[str, object]:
    """Returns transformers' `config.json`."""
    return {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "num_mel_bins": shape.mels,
        "d_model": shape.width,
        "encoder_layers": shape.encoder_layers,
        "decoder_layers": shape.decoder_layers,
        "encoder_attention_heads": shape.encoder_heads,
        "decoder_attention_heads": shape.decoder_heads,
        "encoder_ffn_dim": 4 * shape.width,
        "decoder_ffn_dim": 4 * shape.width,
        "vocab_size": shape.vocabulary,
        "pad_token_id": END,
        "bos_token_id": END,
        "eos_token_id": END,
        "decoder_start_token_id": START,
        "suppress_tokens": [END],  # so that every answer has as many tokens as requested
        "begin_suppress_tokens": [],
    }


def write(folder: Path, name: str, device: str, dtype: torch.dtype) -> Path:
    """Writes a checkpoint of this shape into `folder` and returns its path. An existing one is
    kept: it has gigabytes.
    """
    from safetensors.torch import save_file

    shape = SHAPES[name]
    folder = folder / f"{name}-{str(dtype).removeprefix('torch.')}"
    if (folder / "model.safetensors").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    config = config_of(shape)
    (folder / "config.json").write_text(json.dumps(config))
    more = {"no_timestamps_token_id": NO_TIMESTAMPS + (shape.mels == 128), "max_length": 448}
    kept = ("suppress_tokens", "begin_suppress_tokens", "decoder_start_token_id", "eos_token_id")
    special = {key: config[key] for key in (*kept, "pad_token_id", "bos_token_id")}
    (folder / "generation_config.json").write_text(json.dumps(special | more))
    named = {f"model.{name}": values for name, values in tensors(shape, device, dtype).items()}
    save_file(named, folder / "model.safetensors", {"format": "pt"})
    return folder


def tensors(shape: ModelShape, device: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Makes random weights, by transformers' names without `model.`.

    The text is nonsense, but most steps have another token, and each window another text. A tied
    decoder with initial weights would only repeat its last token. So the embeddings are small
    compared with what the layers add, and the decoder attends to a part of the audio rather than to
    its mean. Some embeddings are larger, so that the likeliest token stands out as in trained
    models. Layers after a GELU are balanced: otherwise the mean of its outputs, added by each
    layer, would dominate the encoding.
    """
    random = torch.Generator(device).manual_seed(0)
    found: dict[str, torch.Tensor] = {}

    def weight(
        name: str, *size: int, spread: float = _WEIGHT_SPREAD, is_balanced: bool = False
    ) -> None:
        values = torch.randn(size, generator=random, device=device) * spread
        if is_balanced:
            values -= values.mean(1, keepdim=True)
        found[name] = values.to(dtype).cpu()

    def norm(name: str) -> None:
        found[f"{name}.weight"] = torch.ones(shape.width, dtype=dtype)
        found[f"{name}.bias"] = torch.zeros(shape.width, dtype=dtype)

    def linear(
        name: str,
        outputs: int,
        inputs: int,
        *,
        bias: bool = True,
        gain: float = 1.0,
        is_balanced: bool = False,
    ) -> None:
        spread = gain * inputs**-0.5
        weight(f"{name}.weight", outputs, inputs, spread=spread, is_balanced=is_balanced)
        if bias:
            weight(f"{name}.bias", outputs)

    def attention(name: str) -> None:
        for part in ("q", "k", "v"):
            gain = _CROSS_ATTENTION_GAIN if "encoder_attn" in name and part in "qk" else 1.0
            linear(f"{name}.{part}_proj", shape.width, shape.width, bias=part != "k", gain=gain)
        linear(f"{name}.out_proj", shape.width, shape.width)
        norm(f"{name}_layer_norm")

    for part, layers in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        for layer in range(layers):
            name = f"{part}.layers.{layer}"
            attention(f"{name}.self_attn")
            if part == "decoder":
                attention(f"{name}.encoder_attn")
            linear(f"{name}.fc1", 4 * shape.width, shape.width)
            linear(f"{name}.fc2", shape.width, 4 * shape.width, is_balanced=True)
            norm(f"{name}.final_layer_norm")
        norm(f"{part}.layer_norm")
    for conv, inputs in (("conv1", shape.mels), ("conv2", shape.width)):
        size, spread = (shape.width, inputs, 3), (3 * inputs) ** -0.5
        weight(f"encoder.{conv}.weight", *size, spread=spread, is_balanced=conv == "conv2")
    for conv in ("conv1", "conv2"):
        weight(f"encoder.{conv}.bias", shape.width)
    weight("encoder.embed_positions.weight", shape.audio_positions, shape.width, spread=0.3)
    added = (3 * shape.decoder_layers) ** 0.5  # each layer adds three values of about 1
    weight("decoder.embed_positions.weight", shape.text_positions, shape.width, spread=added)
    weight("decoder.embed_tokens.weight", shape.vocabulary, shape.width)
    sizes = (
        _EMBEDDING_SIZE_SPREAD * torch.randn(shape.vocabulary, 1, generator=random, device=device)
    ).exp()
    found["decoder.embed_tokens.weight"] *= sizes.to(dtype).cpu()
    return found
