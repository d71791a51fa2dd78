"""Engine for embeddings: sentence-transformers models (MiniLM, E5, BGE, GTE) on onnxruntime.

Pooling, prefixes and normalisation come from the model's files. A checkpoint of the BERT family
needs no conversion; other networks need an exported `model.onnx`.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from engines.base.text import EmbedItem, EmbedResult, TextModelInfo
from engines.runtime.text_encoder.encoder import Floats, TextEncoder, Tokens

REQUIRES = {"onnxruntime": "onnxruntime", "tokenizers": "tokenizers"}


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine."""

    model: str
    "Folder of the model."
    threads: Annotated[int, Meta(ge=0, le=256)] = 0
    "Threads of the network; 0: as many as there are cores, at most 4."


def create(settings: Settings) -> "OnnxEmbedder":
    """Loads and tests the model. Raises EngineError if its files do not fit together."""
    return OnnxEmbedder(settings)


class OnnxEmbedder:
    """An `EmbedModel`."""

    def __init__(self, settings: Settings) -> None:
        self._encoder = TextEncoder(settings.model, "embed", settings.threads)
        self._folder = self._encoder.folder
        self.info: TextModelInfo = self._folder.info
        self._encoder.check(self._vectors)

    def embed(self, items: Sequence[EmbedItem]) -> list[EmbedResult]:
        """Computes all texts of the items together."""
        inputs = [[self._tokenize(text, item) for text in item.inputs] for item in items]
        fits_limit = [
            all(0 < len(tokens) <= self.info.max_tokens for tokens in item) for item in inputs
        ]
        fitting = [
            tokens for item, fits in zip(inputs, fits_limit, strict=True) if fits for tokens in item
        ]
        rows = iter(self._encoder.run(fitting, self._vectors))
        return [
            EmbedResult(
                tuple(map(len, item)),
                b"".join(next(rows).astype("<f4").tobytes() for _ in item) if fits else b"",
            )
            for item, fits in zip(inputs, fits_limit, strict=True)
        ]

    def close(self) -> None:
        """Does nothing: the end of the worker process frees the model."""

    def _tokenize(self, text: str | Sequence[int], item: EmbedItem) -> Tokens:
        if not isinstance(text, str):
            return Tokens(text)
        text = self._folder.prompts.get(item.prompt or self._folder.default_prompt, "") + text
        tokens = self._encoder.tokenize(text)
        if item.is_cut and len(tokens) > self.info.max_tokens:
            return self._encoder.tokenize_truncated(text, self.info.max_tokens)
        return tokens

    def _vectors(self, hidden: Floats, mask: npt.NDArray[np.int64]) -> Floats:
        """Pools the vectors of the tokens and normalises the result."""
        vectors = hidden if hidden.ndim == 2 else self._pool(hidden, mask)
        if self._folder.is_normalized:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(lengths, 1e-12)
        return vectors

    def _pool(self, hidden: Floats, mask: npt.NDArray[np.int64]) -> Floats:
        """Returns one vector for each input, from shape (inputs, tokens, size)."""
        pooled: Floats
        match self._folder.pooling:
            case "cls":
                pooled = hidden[:, 0]
            case "last":
                pooled = hidden[np.arange(len(hidden)), mask.sum(axis=1) - 1]
            case "mean":
                weights = mask[:, :, None].astype(np.float32)
                pooled = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        return pooled
