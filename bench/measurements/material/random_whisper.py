"""Writes a Whisper with random weights in real shapes, to measure its cost without a download.

Its text is nonsense, but has the form of real output: real tokens, timestamps, an end. Use it to
measure speed, and to compare two programs on the same weights, never to measure accuracy.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bench.measurements.material.whisper_tokens import TokenTable, whisper_tokens

Array = npt.NDArray[np.float32]
"Array of float32 of any shape."

WhisperSize = Literal["tiny", "base", "small", "medium", "large-v3", "large-v3-turbo"]
"Name of a size of OpenAI's models."

AUDIO_POSITIONS, TEXT_POSITIONS = 1500, 448
"Positions of the encoder and of the decoder in all sizes."

ANSWER_TOKENS = 24
"Length of an answer: about the number of tokens in five seconds of speech."

_ASSETS = Path(__file__).resolve().parents[4] / "shared" / "models" / "whisper-assets"

_EMBEDDING_SPREAD = 0.3
"Standard deviation of the embeddings. With less, all timestamps together outweigh every word."

_END_WEIGHT = 100.0
"Weight of the end token at positions after the answer. It outweighs all other tokens."

_CONVOLUTION_GAIN, _QUERY_GAIN = 8.0, 6.0
_CROSS_ATTENTION_GAIN, _RESIDUAL_GAIN = 0.7, 0.3
_POSITION_SPREAD = 1.0
"""Gains of layers, and standard deviation of the position embeddings; found by trial. With these
values other audio gives other words, no word repeats endlessly, and the scores are on both sides
of the default thresholds."""

_EMBEDDING_SHIFT = 7919
"""Rows by which the input embeddings are shifted against the output embeddings. With equal
matrices each word would repeat itself."""


@dataclass(frozen=True, slots=True)
class _ModelSize:
    width: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    mels: int = 80


SIZES: Mapping[WhisperSize, _ModelSize] = {
    "tiny": _ModelSize(384, 6, 4, 4),
    "base": _ModelSize(512, 8, 6, 6),
    "small": _ModelSize(768, 12, 12, 12),
    "medium": _ModelSize(1024, 16, 24, 24),
    "large-v3": _ModelSize(1280, 20, 32, 32, mels=128),
    "large-v3-turbo": _ModelSize(1280, 20, 32, 4, mels=128),
}
"Sizes of the models by name."


def build(
    folder: Path,
    shape: WhisperSize = "tiny",
    seed: int = 0,
    *,
    answer_tokens: int | None = ANSWER_TOKENS,
    assets: Path | None = None,
) -> Path:
    """Writes a multilingual model for faster-whisper (float16) into `folder`; returns the folder.

    answer_tokens: position of the end, counted from a start without a prompt; None: no forced end.
    assets: a folder with OpenAI's `multilingual.tiktoken`; without it the words are made up.
    """
    size = SIZES[shape]
    tokens = whisper_tokens(assets or _ASSETS, size.mels == 128)
    spec = _spec(size, tokens, np.random.default_rng(seed), answer_tokens)
    folder.mkdir(parents=True, exist_ok=True)
    spec.validate()
    spec.optimize(quantization="float16")
    spec.save(str(folder))
    (folder / "tokenizer.json").write_text(json.dumps(tokens.tokenizer, ensure_ascii=False))
    (folder / "preprocessor_config.json").write_text(json.dumps({"feature_size": size.mels}))
    return folder


def _spec(
    size: _ModelSize, tokens: TokenTable, random: np.random.Generator, answer_tokens: int | None
) -> Any:
    from ctranslate2.specs import WhisperSpec

    spec = WhisperSpec(size.encoder_layers, size.heads, size.decoder_layers, size.heads)
    fill = _RandomWeights(random, size.width)
    encoder, decoder = spec.encoder, spec.decoder
    fill.linear(encoder.conv1, (size.width, size.mels, 3), _CONVOLUTION_GAIN)
    fill.linear(encoder.conv2, (size.width, size.width, 3))
    encoder.position_encodings.encodings = _sinusoids(AUDIO_POSITIONS, size.width)
    fill.norm(encoder.layer_norm)
    for layer in encoder.layer:
        fill.attention(layer.self_attention, fused=3)
        fill.feed_forward(layer.ffn)
    embeddings = fill.normal((len(tokens.vocabulary), size.width), _EMBEDDING_SPREAD)
    decoder.embeddings.weight = np.roll(embeddings, _EMBEDDING_SHIFT, axis=0)
    decoder.projection.weight = embeddings
    positions = fill.normal((TEXT_POSITIONS, size.width), _POSITION_SPREAD)
    if answer_tokens is not None:
        positions[answer_tokens + 3 :] += _END_WEIGHT * embeddings[tokens.end]
    decoder.position_encodings.encodings = positions
    fill.norm(decoder.layer_norm)
    for layer in decoder.layer:
        fill.attention(layer.self_attention, fused=3)
        fill.attention(layer.attention, fused=1)
        fill.feed_forward(layer.ffn)
    spec.register_vocabulary(list(tokens.vocabulary))
    spec.config.lang_ids = list(tokens.languages)
    spec.config.suppress_ids = []
    spec.config.suppress_ids_begin = [tokens.blank, tokens.end]
    later_half = range(size.decoder_layers // 2, size.decoder_layers)
    spec.config.alignment_heads = [list(pair) for pair in product(later_half, range(size.heads))]
    return spec


class _RandomWeights:
    """Random values for the parts of a CTranslate2 specification."""

    def __init__(self, random: np.random.Generator, width: int) -> None:
        self._random, self._width = random, width

    def normal(self, shape: tuple[int, ...], spread: float) -> Array:
        values: Array = self._random.standard_normal(shape, np.float32) * np.float32(spread)
        return values

    def linear(self, part: Any, shape: tuple[int, ...], gain: float = 1.0) -> None:
        """Fills a layer that multiplies the size of its input by about `gain`."""
        part.weight = self.normal(shape, gain * float(np.prod(shape[1:])) ** -0.5)
        part.bias = self.normal(shape[:1], 0.02)

    def norm(self, part: Any) -> None:
        part.gamma = np.ones(self._width, np.float32)
        part.beta = np.zeros(self._width, np.float32)

    def attention(self, part: Any, *, fused: int) -> None:
        """Fills an attention layer.

        fused: 3 for self-attention, with query, key and value in one matrix; 1 for cross-attention,
        with key and value in a second matrix.
        """
        width = self._width
        self.norm(part.layer_norm)
        self.linear(part.linear[0], (fused * width, width), 1 if fused == 3 else _QUERY_GAIN)
        if fused == 1:
            self.linear(part.linear[1], (2 * width, width))
        self.linear(
            part.linear[-1], (width, width), _RESIDUAL_GAIN if fused == 3 else _CROSS_ATTENTION_GAIN
        )

    def feed_forward(self, part: Any) -> None:
        self.norm(part.layer_norm)
        self.linear(part.linear_0, (4 * self._width, self._width))
        self.linear(part.linear_1, (self._width, 4 * self._width), _RESIDUAL_GAIN)


def _sinusoids(length: int, width: int) -> Array:
    """Returns Whisper's position encodings of the audio, shape (length, width)."""
    step = np.log(10_000) / (width // 2 - 1)
    angles = np.arange(length)[:, None] * np.exp(-step * np.arange(width // 2))[None]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
