"""Layers of GPT-2's form in torch for many sequences at once, over caches that are allocated once.

transformers reads the checkpoints. The steps are computed here: its `generate` cannot let sequences
join and leave, and computes the scores of the whole vocabulary where few ids may be written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

Matrix: TypeAlias = tuple[torch.Tensor, torch.Tensor | None]
"Weight, shape (outputs, inputs), and bias, if there is one."

Attention: TypeAlias = Callable[[int, torch.Tensor], torch.Tensor]
"(layer, queries, keys and values (..., 3 * width)) -> attention (..., width)."


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
class Layers:
    """All layers of a network, and the norm behind them."""

    layers: tuple[Layer, ...]
    norm: Matrix
    heads: int
    epsilon: float
    gelu: Literal["tanh", "none"]
    "Approximation of the activation: GPT-2 was trained with tanh, Bark with none."

    def run(self, vectors: torch.Tensor, attend: Attention) -> torch.Tensor:
        """Returns the output, shape (..., width), for vectors of this shape. `attend`: computes the
        attention, and keeps keys and values where they are needed again."""
        x = vectors
        for number, layer in enumerate(self.layers):
            x = x + linear(
                attend(number, linear(self._norm(x, layer.norm), *layer.attention)), *layer.output
            )
            feed = linear(self._norm(x, layer.feed_norm), *layer.feed_in)
            x = x + linear(gelu(feed, approximate=self.gelu), *layer.feed_out)
        return self._norm(x, self.norm)

    def attend_both_ways(self, _layer: int, rows: torch.Tensor) -> torch.Tensor:
        """Returns the attention of whole windows, in which each place reads all others. `rows`:
        shape (windows, places, 3 * width)."""
        windows, places, wide = rows.shape
        parts = rows.view(windows, places, 3, self.heads, wide // 3 // self.heads)
        found = scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4))
        return found.transpose(1, 2).flatten(2)

    def _norm(self, x: torch.Tensor, weights: Matrix) -> torch.Tensor:
        return layer_norm(x, x.shape[-1:], *weights, self.epsilon)


@dataclass(frozen=True, slots=True)
class TokenNetwork:
    """Weights of a token model."""

    layers: Layers
    tokens: torch.Tensor
    "Vectors of the ids, shape (vocabulary, width)."
    positions: torch.Tensor
    "Vectors of the positions, shape (context, width)."
    head: torch.Tensor
    "Rows of the scores, shape (vocabulary, width). It may be the same memory as `tokens`."


class SlotCache:
    """Keys and values of all slots, allocated once. A slot is the memory of one sequence."""

    def __init__(self, network: TokenNetwork, slots: int) -> None:
        context, width = network.positions.shape
        self._heads = network.layers.heads
        self._head_width = width // self._heads
        layers = len(network.layers.layers)
        shape = (2, layers, slots, self._heads, context, self._head_width)
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
            # One call per row reads exactly what its slot holds. A single call for all rows would
            # read, for each of them, as much as the longest has, and also the slots that nobody
            # uses.
            for row, slot, position in zip(parts, slots, positions, strict=True):
                kept = self._kept[:, layer, slot]
                kept[:, :, position] = row[1:, :, 0]
                keys, values = kept[:, None, :, : position + 1]
                found.append(scaled_dot_product_attention(row[None, 0], keys, values))
            return torch.cat(found).flatten(1)

        return attend
