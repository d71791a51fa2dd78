"""Whisper's decoder: computes one token of every row, or all tokens of one known text."""

from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import linear, scaled_dot_product_attention

from engines.asr.whisper_torch.batching.kv_cache import DecoderState
from engines.asr.whisper_torch.checkpoint import ModelShape
from engines.asr.whisper_torch.network.weights import DecoderWeights

AttentionFunction = Callable[[int, torch.Tensor], torch.Tensor]
"(layer, its projected input (rows, tokens, ...)) -> attention output (rows, tokens, width)."


def cross_keys_values(
    weights: DecoderWeights, shape: ModelShape, encoded: torch.Tensor
) -> torch.Tensor:
    """Returns the keys and values of every layer's cross-attention.

    encoded: encoder output, shape (positions, width). Result: shape (2, layers, heads, positions,
    head width).
    """
    parts = (len(encoded), shape.decoder_layers, 2, shape.decoder_heads, shape.head_width)
    return weights.cross(encoded).view(parts).permute(2, 1, 3, 0, 4)


def step(
    weights: DecoderWeights,
    state: DecoderState,
    rows: int,
    tokens: int,
    encoder_positions: int,
    *,
    is_full: bool,
) -> torch.Tensor:
    """Computes the scores of the next token of the first `rows` rows: (rows, vocabulary), float32.

    tokens, encoder_positions: how much of the caches is read; no row may need more.
    is_full: all rows in use attend to exactly `encoder_positions`, so that no mask is needed.
    """
    position = state.position[:rows]
    token = state.tokens[:rows].gather(1, position[:, None])
    number = state.indices[:rows]
    past = state.indices[:tokens] <= position[:, None]
    past = torch.where(past, state.visible, state.hidden)[:, None, None]
    audio = None
    if not is_full:
        audio = state.indices[:encoder_positions] < state.encoder_positions[:rows, None]
        audio = torch.where(audio, state.visible, state.hidden)[:, None, None]

    def attend_tokens(layer: int, qkv: torch.Tensor) -> torch.Tensor:
        parts = qkv.view(rows, 3, state.shape.decoder_heads, state.shape.head_width)
        kept = state.self_cache[:, layer, :rows]
        kept[:, number, :, position] = parts[:, 1:]
        keys, values = kept[:, :, :, :tokens]
        return _attention(parts[:, 0, :, None], keys, values, past)

    def attend_audio(layer: int, query: torch.Tensor) -> torch.Tensor:
        (q,) = _split_heads(query, 1, state.shape)
        keys, values = state.cross_cache[:, layer, :rows, :, :encoder_positions]
        return _attention(q, keys, values, audio)

    x = weights.tokens[token] + weights.positions[position][:, None]
    return scores(weights, _run_layers(weights, x, attend_tokens, attend_audio))[:, 0]


def forced_decode(
    weights: DecoderWeights,
    shape: ModelShape,
    tokens: torch.Tensor,
    audio: torch.Tensor,
    watched_heads: Sequence[tuple[int, int]] = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Runs the decoder over a known text at once.

    tokens: shape (tokens,). audio: from `cross_keys_values`.
    watched_heads: (layer, head) of the heads whose cross-attention is returned.
    Returns the output (tokens, width), keys and values (2, layers, heads, tokens, head width), and
    the attention of the watched heads before the softmax (heads, tokens, positions).
    """
    kept: list[torch.Tensor] = []
    attention_scores: list[torch.Tensor] = []

    def attend_tokens(_: int, qkv: torch.Tensor) -> torch.Tensor:
        q, k, v = _split_heads(qkv, 3, shape)
        kept.append(torch.stack([k[0], v[0]]))
        found = scaled_dot_product_attention(q, k, v, is_causal=True)
        return found.transpose(1, 2).flatten(2)

    def attend_audio(layer: int, query: torch.Tensor) -> torch.Tensor:
        (q,) = _split_heads(query, 1, shape)
        keys, values = audio[:, layer][:, None]
        heads = [head for at, head in watched_heads if at == layer]
        if heads:
            attention_scores.append(q[0, heads] @ keys[0, heads].mT * shape.head_width**-0.5)
        return _attention(q, keys, values, None)

    x = (weights.tokens[tokens] + weights.positions[: len(tokens)])[None]
    output = _run_layers(weights, x, attend_tokens, attend_audio)[0]
    where = torch.cat(attention_scores) if attention_scores else output.new_zeros(0)
    return output, torch.stack(kept, 1), where


def scores(weights: DecoderWeights, output: torch.Tensor) -> torch.Tensor:
    """Returns the scores of every token of the vocabulary, float32."""
    return linear(output, weights.tokens).float()


def _run_layers(
    weights: DecoderWeights,
    x: torch.Tensor,
    attend_tokens: AttentionFunction,
    attend_audio: AttentionFunction,
) -> torch.Tensor:
    for number, (own, cross, feed_forward) in enumerate(weights.layers):
        x = x + own.out(attend_tokens(number, own.qkv(own.norm(x))))
        x = x + cross.out(attend_audio(number, cross.query(cross.norm(x))))
        x = feed_forward(x)
    return weights.norm(x)


def _split_heads(x: torch.Tensor, parts: int, shape: ModelShape) -> torch.Tensor:
    """Reshapes (rows, tokens, parts * width) to (parts, rows, heads, tokens, head width)."""
    rows, tokens, _ = x.shape
    x = x.view(rows, tokens, parts, shape.decoder_heads, shape.head_width)
    return x.permute(2, 0, 3, 1, 4)


def _attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    return scaled_dot_product_attention(q, keys, values, mask).transpose(1, 2).flatten(2)
