"""Networks of a checkpoint: transformers reads the weights, and each stage gets its part."""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from engines.tts.bark.settings import Settings
from engines.tts.token_model.network import Layer, Layers, Matrix, TokenNetwork

NORM_EPSILON = 1e-5
"Epsilon of the layer norms: torch's default, which Bark uses."


@dataclass(frozen=True, slots=True)
class FineNetwork:
    """Weights of the fine stage."""

    layers: Layers
    tokens: tuple[torch.Tensor, ...]
    "Vectors of the codes, by codebook, each of shape (codes, width)."
    positions: torch.Tensor
    heads: tuple[torch.Tensor, ...]
    "Rows of the scores of each codebook but the first, each of shape (codes, width)."
    codebook_size: int

    def run(self, codes: torch.Tensor, codebook: int) -> torch.Tensor:
        """Returns the output from which the scores of a codebook are computed, shape (windows,
        frames, width). `codes`: shape (windows, frames, codebooks); those of finer codebooks than
        `codebook` are not read."""
        vectors = self.tokens[0][codes[..., 0]]
        for number in range(1, codebook + 1):
            vectors = vectors + self.tokens[number][codes[..., number]]
        vectors = vectors + self.positions[: codes.shape[1]]
        return self.layers.run(vectors, self.layers.attend_both_ways)

    def scores(self, output: torch.Tensor, codebook: int) -> torch.Tensor:
        """Returns the scores of the codes of a codebook, shape (frames, codebook_size)."""
        return output @ self.heads[codebook - 1][: self.codebook_size].T


@dataclass(frozen=True, slots=True)
class BarkNetworks:
    """The networks of all stages, each on its device."""

    semantic: TokenNetwork
    coarse: TokenNetwork
    fine: FineNetwork
    codec: Any
    "transformers' `EncodecModel`."


def load_networks(settings: Settings, codebook_size: int) -> BarkNetworks:
    """Reads a checkpoint, which blocks for seconds. Raises all that transformers raises."""
    from transformers import BarkModel

    model: Any = BarkModel.from_pretrained(
        str(settings.folder.resolve()),
        local_files_only=True,
        dtype=settings.dtype,
        use_safetensors=True,
    )
    return networks_of(model.eval(), settings, codebook_size)


def networks_of(model: Any, settings: Settings, codebook_size: int) -> BarkNetworks:
    """Moves the parts of transformers' `BarkModel` to the devices of their stages."""
    fine = model.fine_acoustics.to(device_of(settings.fine.device))
    return BarkNetworks(
        _token_network(model.semantic.to(device_of(settings.semantic.device))),
        _token_network(model.coarse_acoustics.to(device_of(settings.coarse.device))),
        FineNetwork(
            _layers(fine),
            tuple(part.weight.detach() for part in fine.input_embeds_layers),
            fine.position_embeds_layer.weight.detach(),
            tuple(head.weight.detach() for head in fine.lm_heads),
            codebook_size,
        ),
        model.codec_model.to(device_of(settings.codec.device)).float(),
    )


def device_of(name: str) -> str:
    """Returns the device of a setting, by torch's name."""
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def _token_network(model: Any) -> TokenNetwork:
    return TokenNetwork(
        _layers(model),
        model.input_embeds_layer.weight.detach(),
        model.position_embeds_layer.weight.detach(),
        model.lm_head.weight.detach(),
    )


def _layers(model: Any) -> Layers:
    none: Literal["none"] = "none"
    return Layers(
        tuple(_layer(block) for block in model.layers),
        _matrix(model.layernorm_final),
        model.config.num_heads,
        NORM_EPSILON,
        none,
    )


def _layer(block: Any) -> Layer:
    return Layer(
        _matrix(block.layernorm_1),
        _matrix(block.attn.att_proj),
        _matrix(block.attn.out_proj),
        _matrix(block.layernorm_2),
        _matrix(block.mlp.in_proj),
        _matrix(block.mlp.out_proj),
    )


def _matrix(module: Any) -> Matrix:
    return module.weight.detach(), None if module.bias is None else module.bias.detach()
