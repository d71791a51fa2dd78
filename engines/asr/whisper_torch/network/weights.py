"""Loads weights from safetensors onto a device, in the layout that the model computes with."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from core.errors import ConfigError
from engines.asr.whisper_torch.checkpoint import ModelShape
from engines.asr.whisper_torch.network.linear import Linear, WeightStorage, quantize_linear

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"

Tensors = Mapping[str, torch.Tensor]
"Tensors by transformers' names, without the leading `model.`."


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """A layer normalisation."""

    weight: torch.Tensor
    bias: torch.Tensor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class FeedForward:
    """A feed-forward layer with its norm."""

    norm: LayerNorm
    up: Linear
    down: Linear

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Returns `x` plus the output of the layer."""
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """A self-attention layer with its norm."""

    norm: LayerNorm
    qkv: Linear
    "Query, key and value in one product."
    out: Linear


@dataclass(frozen=True, slots=True)
class CrossAttention:
    """A cross-attention layer with its norm; its keys and values are in `DecoderWeights.cross`."""

    norm: LayerNorm
    query: Linear
    out: Linear


@dataclass(frozen=True, slots=True)
class EncoderWeights:
    """Weights of the encoder. Convolutions are (weight, bias)."""

    conv1: tuple[torch.Tensor, torch.Tensor]
    conv2: tuple[torch.Tensor, torch.Tensor]
    positions: torch.Tensor
    layers: Sequence[tuple[SelfAttention, FeedForward]]
    norm: LayerNorm
    heads: int


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """Weights of the decoder."""

    tokens: torch.Tensor
    "Token embeddings, shape (vocabulary, width), of the input and of the scores."
    positions: torch.Tensor
    layers: Sequence[tuple[SelfAttention, CrossAttention, FeedForward]]
    cross: Linear
    "Keys and values of all layers from the encoder's output: layers * 2 * width outputs."
    norm: LayerNorm


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """All weights of a model on one device."""

    shape: ModelShape
    encoder: EncoderWeights
    decoder: DecoderWeights
    dtype: torch.dtype
    device: torch.device

    @property
    def nbytes(self) -> int:
        """Size of all tensors in bytes."""
        return sum(_tensor_sizes(self.encoder)) + sum(_tensor_sizes(self.decoder))


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Reads all tensors of a checkpoint, from one file or several. Raises ConfigError."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    index = folder / INDEX
    try:
        names = [SINGLE]
        if index.is_file():
            names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        found: dict[str, torch.Tensor] = {}
        for name in names:
            found |= load_file(folder / name)
    except (OSError, ValueError, KeyError, SafetensorError) as exc:
        raise ConfigError(f"{folder}: its weights cannot be read: {exc}") from exc
    return {name.removeprefix("model."): tensor for name, tensor in found.items()}


def build(
    tensors: Tensors,
    shape: ModelShape,
    *,
    dtype: torch.dtype,
    device: str,
    storage: WeightStorage = "plain",
) -> ModelWeights:
    """Returns the weights on a device. Raises ConfigError for a missing tensor.

    dtype: number type of the computation. storage: storage of the matrices.
    """
    reader = _TensorReader(tensors, dtype, torch.device(device), storage)
    try:
        encoder, decoder = _encoder(reader, shape), _decoder(reader, shape)
        where = decoder.tokens.device  # has the number of the GPU, which `set_device` needs
        return ModelWeights(shape, encoder, decoder, dtype, where)
    except KeyError as exc:
        raise ConfigError(f"the checkpoint has no tensor {exc}") from exc


class _TensorReader:
    """Reads tensors by name, moved to the device and converted."""

    def __init__(
        self, tensors: Tensors, dtype: torch.dtype, device: torch.device, storage: WeightStorage
    ) -> None:
        self._tensors, self._dtype, self._device, self._storage = tensors, dtype, device, storage

    def plain(self, name: str) -> torch.Tensor:
        return self._tensors[name].to(self._device, self._dtype)

    def pair(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        return self.plain(f"{name}.weight"), self.plain(f"{name}.bias")

    def norm(self, name: str) -> LayerNorm:
        return LayerNorm(*self.pair(name))

    def linear(self, *names: str) -> Linear:
        """Joins several layers into one product. Whisper's keys have no bias: theirs is 0."""
        weights = [self.plain(f"{name}.weight") for name in names]
        biases = [
            self.plain(f"{name}.bias")
            if f"{name}.bias" in self._tensors
            else weight.new_zeros(len(weight))
            for name, weight in zip(names, weights, strict=True)
        ]
        return quantize_linear(torch.cat(weights), torch.cat(biases), self._storage)

    def attention(self, name: str) -> SelfAttention:
        parts = [f"{name}.self_attn.{part}_proj" for part in "qkv"]
        return SelfAttention(
            self.norm(f"{name}.self_attn_layer_norm"),
            self.linear(*parts),
            self.linear(f"{name}.self_attn.out_proj"),
        )

    def feed_forward(self, name: str) -> FeedForward:
        norm = self.norm(f"{name}.final_layer_norm")
        return FeedForward(norm, self.linear(f"{name}.fc1"), self.linear(f"{name}.fc2"))


def _encoder(reader: _TensorReader, shape: ModelShape) -> EncoderWeights:
    names = [f"encoder.layers.{i}" for i in range(shape.encoder_layers)]
    return EncoderWeights(
        conv1=reader.pair("encoder.conv1"),
        conv2=reader.pair("encoder.conv2"),
        positions=reader.plain("encoder.embed_positions.weight"),
        layers=[(reader.attention(name), reader.feed_forward(name)) for name in names],
        norm=reader.norm("encoder.layer_norm"),
        heads=shape.encoder_heads,
    )


def _decoder(reader: _TensorReader, shape: ModelShape) -> DecoderWeights:
    names = [f"decoder.layers.{i}" for i in range(shape.decoder_layers)]
    layers = []
    for name in names:
        cross = CrossAttention(
            reader.norm(f"{name}.encoder_attn_layer_norm"),
            reader.linear(f"{name}.encoder_attn.q_proj"),
            reader.linear(f"{name}.encoder_attn.out_proj"),
        )
        layers.append((reader.attention(name), cross, reader.feed_forward(name)))
    key_value_names = [f"{name}.encoder_attn.{part}_proj" for name in names for part in "kv"]
    return DecoderWeights(
        tokens=reader.plain("decoder.embed_tokens.weight"),
        positions=reader.plain("decoder.embed_positions.weight"),
        layers=layers,
        cross=reader.linear(*key_value_names),
        norm=reader.norm("decoder.layer_norm"),
    )


def _tensor_sizes(part: object) -> Iterator[int]:
    """Yields the size of every tensor in `part`, in bytes."""
    if isinstance(part, torch.Tensor):
        yield part.nbytes
    elif isinstance(part, list | tuple):
        for item in part:
            yield from _tensor_sizes(item)
    elif hasattr(part, "__slots__"):
        for name in part.__slots__:
            yield from _tensor_sizes(getattr(part, name))
