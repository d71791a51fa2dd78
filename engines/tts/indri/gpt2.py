"""GPT-2 in torch for many speeches at once, over caches that are allocated once.

transformers reads the checkpoint. The steps are computed here: its `generate` cannot let speeches
join and leave, and multiplies all 70 016 rows of the vocabulary where 2048 may be written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from core.errors import EngineError

Matrix: TypeAlias = tuple[torch.Tensor, torch.Tensor | None]
"Weight, shape (outputs, inputs), and bias."

Attention: TypeAlias = Callable[[int, torch.Tensor], torch.Tensor]
"(layer, queries, keys and values (rows, 3 * width)) -> attention (rows, width)."

EXPECTED = {
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}
"Values of config.json for which the steps below are right."


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer."""

    norm: Matrix
    attention: Matrix
    output: Matrix
    feed_norm: Matrix
    feed_in: Matrix
    feed_out: Matrix


@dataclass(frozen=True, slots=True)
class Gpt2:
    """Weights of the network."""

    layers: tuple[Layer, ...]
    tokens: torch.Tensor
    "Vectors of the ids, shape (vocabulary, width)."
    positions: torch.Tensor
    norm: Matrix
    head: torch.Tensor
    "Rows of the scores, shape (vocabulary, width). Mostly the same memory as `tokens`."
    heads: int
    epsilon: float

    @classmethod
    def of(cls, model: Any) -> "Gpt2":
        """Takes the weights of transformers' `GPT2LMHeadModel`. Raises EngineError for a network of
        another form."""
        config = model.config
        for name, value in EXPECTED.items():
            if getattr(config, name, value) != value:
                found = f"{name} is {getattr(config, name)!r}; allowed: {value!r}"
                raise EngineError("tts", "indri", f"config.json: {found}")
        body = model.transformer
        return cls(
            tuple(_layer(block) for block in body.h),
            body.wte.weight.detach(),
            body.wpe.weight.detach(),
            _matrix(body.ln_f),
            model.lm_head.weight.detach(),
            config.n_head,
            config.layer_norm_epsilon,
        )

    def run(self, ids: torch.Tensor, positions: torch.Tensor, attend: Attention) -> torch.Tensor:
        """Returns the network's output for ids at positions, both of shape (rows,): (rows, width).
        `attend`: computes the attention, and keeps the keys and values."""
        x = self.tokens[ids] + self.positions[positions]
        for number, layer in enumerate(self.layers):
            x = x + linear(
                attend(number, linear(self._norm(x, layer.norm), *layer.attention)), *layer.output
            )
            inner = gelu(linear(self._norm(x, layer.feed_norm), *layer.feed_in), approximate="tanh")
            x = x + linear(inner, *layer.feed_out)
        return self._norm(x, self.norm)

    def _norm(self, x: torch.Tensor, weights: Matrix) -> torch.Tensor:
        return layer_norm(x, x.shape[-1:], *weights, self.epsilon)


class SlotCache:
    """Keys and values of all slots, allocated once. A slot is the memory of one speech."""

    def __init__(self, network: Gpt2, slots: int, context: int) -> None:
        width = network.tokens.shape[1]
        self._heads, self._head_width = network.heads, width // network.heads
        shape = (2, len(network.layers), slots, self._heads, context, self._head_width)
        self._kept = torch.zeros(shape, dtype=network.tokens.dtype, device=network.tokens.device)

    def read_prompt(self, slot: int) -> Attention:
        """Returns the attention of a prompt, whose ids are the rows; it fills a slot from its
        start."""

        def attend(layer: int, rows: torch.Tensor) -> torch.Tensor:
            parts = rows.view(len(rows), 3, self._heads, self._head_width).permute(1, 2, 0, 3)
            self._kept[:, layer, slot, :, : len(rows)] = parts[1:]
            query, keys, values = parts[:, None]
            found = scaled_dot_product_attention(query, keys, values, is_causal=True)
            return found[0].transpose(0, 1).flatten(1)

        return attend

    def read_next(self, slots: Sequence[int], positions: Sequence[int]) -> Attention:
        """Returns the attention of a step, in which each row is the next id of another slot.
        `positions`: number of ids that each slot has."""

        def attend(layer: int, rows: torch.Tensor) -> torch.Tensor:
            parts = rows.view(len(rows), 3, self._heads, 1, self._head_width)
            found = []
            # One call per row reads exactly what the slot holds. A call for all rows would read as
            # much for each of them as the longest has, and slots that nobody uses.
            for row, slot, position in zip(parts, slots, positions, strict=True):
                kept = self._kept[:, layer, slot]
                kept[:, :, position] = row[1:, :, 0]
                keys, values = kept[:, None, :, : position + 1]
                found.append(scaled_dot_product_attention(row[None, 0], keys, values))
            return torch.cat(found).flatten(1)

        return attend


def _layer(block: Any) -> Layer:
    return Layer(
        _matrix(block.ln_1),
        _transposed(block.attn.c_attn),
        _transposed(block.attn.c_proj),
        _matrix(block.ln_2),
        _transposed(block.mlp.c_fc),
        _transposed(block.mlp.c_proj),
    )


def _matrix(module: Any) -> Matrix:
    return module.weight.detach(), module.bias.detach()


def _transposed(module: Any) -> Matrix:
    """Returns the weights of a `Conv1D`, which is a matrix that is stored the other way round."""
    return module.weight.detach().T.contiguous(), module.bias.detach()
