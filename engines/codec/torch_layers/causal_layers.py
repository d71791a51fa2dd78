"""Layers of codecs that decode a stream piece by piece, with the state of many streams.

transformers' layers see a whole clip and pad its start. These compute the same sums from the same
weights, but take what came before from a buffer that is allocated once: one row per stream.
"""

from typing import Any, TypeAlias

import torch
from torch.nn import functional

Rows: TypeAlias = Any
"Rows of the buffers that a step computes: a slice where they lie side by side, else a tensor."


class CausalConv:
    """A convolution that begins with the last inputs of the step before."""

    def __init__(self, conv: Any, rows: int) -> None:
        """`conv`: torch's Conv1d. `rows`: number of streams."""
        self._conv = conv
        (kernel,), (stride,), (dilation,) = conv.kernel_size, conv.stride, conv.dilation
        self._context = (kernel - 1) * dilation + 1 - stride
        shape = (rows, conv.in_channels, self._context)
        self.buffers = [conv.weight.new_zeros(shape)] if self._context else []

    def __call__(self, x: Any, rows: Rows) -> Any:
        """Returns the outputs for the inputs `x`, shape (rows, channels, steps)."""
        if self._context:
            before = self.buffers[0]
            x = torch.cat([before[rows], x], dim=2)
            before[rows] = x[:, :, -self._context :]
        return self._conv(x)


class CausalConvTranspose:
    """A transposed convolution whose kernel is two strides long. The second half of the last output
    is kept for the next step.

    It is computed as a matrix product, because torch's own is many times slower for a few steps.
    """

    def __init__(self, conv: Any, rows: int) -> None:
        """`conv`: torch's ConvTranspose1d, with one group or a group per channel. `rows`: number of
        streams."""
        (kernel,), (self._stride,) = conv.kernel_size, conv.stride
        assert kernel == 2 * self._stride
        assert conv.groups in (1, conv.in_channels)
        self._is_depthwise = conv.groups > 1
        self._weight, self._bias = conv.weight, conv.bias
        self._channels = conv.out_channels
        shape = (rows, 1, conv.out_channels, self._stride)
        self.buffers = [conv.weight.new_zeros(shape)]

    def __call__(self, x: Any, rows: Rows) -> Any:
        """Returns `stride` outputs for each input of `x`, shape (rows, channels, steps)."""
        x, after = x.transpose(1, 2), self.buffers[0]
        if self._is_depthwise:
            y = x[..., None] * self._weight[:, 0]
        else:
            y = (x @ self._weight.flatten(1)).unflatten(2, (self._channels, 2 * self._stride))
        now, later = y[..., : self._stride], y[..., self._stride :]
        outputs = now + torch.cat([after[rows], later[:, :-1]], dim=1)
        after[rows] = later[:, -1:]
        outputs = outputs.transpose(1, 2).flatten(2)
        return outputs if self._bias is None else outputs + self._bias[:, None]


class CausalResnetBlock:
    """A residual block of SEANet, the network of Mimi and EnCodec."""

    def __init__(self, block: Any, rows: int) -> None:
        """`block`: transformers' block. `rows`: number of streams."""
        self._layers = [causal_layer(layer, rows) for layer in block.block]
        self._shortcut = causal_layer(block.shortcut, rows)
        self.buffers: list[Any] = []
        for layer in (*self._layers, self._shortcut):
            self.buffers += layer.buffers

    def __call__(self, x: Any, rows: Rows) -> Any:
        """Returns the outputs for the inputs `x`, shape (rows, channels, steps)."""
        y = x
        for layer in self._layers:
            y = layer(y, rows)
        return self._shortcut(x, rows) + y


class PointwiseLayer:
    """A layer without memory, such as an activation."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.buffers: list[Any] = []

    def __call__(self, x: Any, rows: Rows) -> Any:
        """Returns the outputs for the inputs `x`."""
        return self._module(x)


CausalLayer = CausalConv | CausalConvTranspose | CausalResnetBlock | PointwiseLayer


def causal_layer(module: Any, rows: int) -> CausalLayer:
    """Returns the layer that computes a layer of transformers step by step, for `rows` streams."""
    if hasattr(module, "block"):
        return CausalResnetBlock(module, rows)
    conv = getattr(module, "conv", None)
    if isinstance(conv, torch.nn.ConvTranspose1d):
        return CausalConvTranspose(conv, rows)
    if isinstance(conv, torch.nn.Conv1d):
        return CausalConv(conv, rows)
    return PointwiseLayer(module)


class CausalTransformer:
    """A transformer with a sliding window, whose keys and values lie in a ring per stream."""

    def __init__(self, transformer: Any, rows: int, max_steps: int) -> None:
        """`transformer`: transformers' `MimiTransformerModel`. `rows`: number of streams.
        `max_steps`: largest number of steps in one call."""
        config = transformer.config
        self._transformer, self._window = transformer, config.sliding_window
        # The first step of a call may still see keys whose places the last step must not take.
        self._ring = self._window + max_steps - 1
        weight = transformer.layers[0].self_attn.k_proj.weight
        shape = (rows, config.num_key_value_heads, self._ring, config.head_dim)
        self._keys = [weight.new_zeros(shape) for _ in transformer.layers]
        self._values = [weight.new_zeros(shape) for _ in transformer.layers]
        self._next = torch.zeros(rows, 1, dtype=torch.long, device=weight.device)
        "Position of the next step of each stream."
        self._places = torch.zeros(rows, self._ring, dtype=torch.long, device=weight.device)
        "Position + 1 of the key at each place of the ring; 0: none."
        self.buffers = [*self._keys, *self._values, self._next, self._places]

    def __call__(self, x: Any, rows: Rows) -> Any:
        """Returns the outputs for the inputs `x`, shape (rows, steps, features)."""
        steps = torch.arange(x.shape[1], device=x.device)
        positions = self._next[rows] + steps
        row_numbers = torch.arange(len(self._next), device=x.device)[rows][:, None]
        places = positions % self._ring
        self._places[row_numbers, places] = positions + 1
        self._next[rows] = positions[:, -1:] + 1
        known, now = self._places[rows][:, None, :] - 1, positions[:, :, None]
        is_seen = (known >= 0) & (known <= now) & (known > now - self._window)
        cos, sin = self._transformer.rotary_emb(x, positions)
        turn = (cos[:, None], sin[:, None])
        at = (row_numbers, places)
        for number, layer in enumerate(self._transformer.layers):
            y = layer.input_layernorm(x)
            y = self._attention(layer.self_attn, number, y, turn, rows, at, is_seen[:, None])
            x = x + layer.self_attn_layer_scale(y)
            y = layer.mlp(layer.post_attention_layernorm(x))
            x = x + layer.mlp_layer_scale(y)
        return x

    def _attention(
        self, attention: Any, number: int, x: Any, turn: Any, rows: Rows, at: Any, is_seen: Any
    ) -> Any:
        """Computes the attention of layer `number`, and keeps its keys and values at the places
        `at` of the rings. `is_seen`: shape (rows, 1, steps, ring)."""
        heads = (*x.shape[:2], -1, attention.head_dim)
        query = _turned(attention.q_proj(x).view(heads).transpose(1, 2), *turn)
        key = _turned(attention.k_proj(x).view(heads).transpose(1, 2), *turn)
        keys, values = self._keys[number], self._values[number]
        row_numbers, places = at
        keys[row_numbers, :, places] = key.transpose(1, 2)
        values[row_numbers, :, places] = attention.v_proj(x).view(heads)
        y = functional.scaled_dot_product_attention(
            query,
            keys[rows],
            values[rows],
            attn_mask=is_seen,
            scale=attention.scaling,
            enable_gqa=keys.shape[1] != query.shape[1],
        )
        return attention.o_proj(y.transpose(1, 2).flatten(2))


def _turned(x: Any, cos: Any, sin: Any) -> Any:
    """Applies rotary position embedding to queries or keys."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
