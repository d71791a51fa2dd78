"""Whisper's encoder, for windows of equal length."""

import torch
from torch.nn.functional import conv1d, gelu, scaled_dot_product_attention

from engines.asr.whisper_torch.network.weights import EncoderWeights, SelfAttention


def encode(weights: EncoderWeights, mel: torch.Tensor) -> torch.Tensor:
    """Encodes windows: shape (windows, mels, frames) -> (windows, frames / 2, width).

    `frames` must be even.
    """
    x = gelu(conv1d(mel, *weights.conv1, padding=1))
    x = gelu(conv1d(x, *weights.conv2, stride=2, padding=1)).transpose(1, 2)
    x = x + weights.positions[: x.shape[1]]
    limit = torch.finfo(x.dtype).max - 1000
    for attention, feed_forward in weights.layers:
        x = feed_forward(x + _attend(attention, attention.norm(x), weights.heads))
        if x.dtype == torch.float16:  # as in transformers: infinity would spread to all values
            x = x.clamp(-limit, limit)
    return weights.norm(x)


def _attend(layer: SelfAttention, x: torch.Tensor, heads: int) -> torch.Tensor:
    windows, length, width = x.shape
    qkv = layer.qkv(x).view(windows, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    attention = scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
    return layer.out(attention.transpose(1, 2).reshape(windows, length, width))
