"""Engine for reranking: cross-encoders (MS MARCO MiniLM, BGE reranker) on onnxruntime."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engines.base.text import RerankItem, RerankResult, TextModelInfo
from engines.embed.onnx import REQUIRES, Settings
from engines.runtime.text_encoder.encoder import Floats, TextEncoder

__all__ = ["REQUIRES", "OnnxReranker", "Settings", "create"]


def create(settings: Settings) -> "OnnxReranker":
    """Loads and tests the model. Raises EngineError if its files do not fit together."""
    return OnnxReranker(settings)


class OnnxReranker:
    """A `RerankModel`."""

    def __init__(self, settings: Settings) -> None:
        self._encoder = TextEncoder(settings.model, "rerank", settings.threads)
        self.info: TextModelInfo = self._encoder.folder.info
        self._encoder.check(self._scores)

    def rerank(self, items: Sequence[RerankItem]) -> list[RerankResult]:
        """Computes all pairs of the items together."""
        pairs = [
            [self._encoder.tokenize(item.query, document) for document in item.documents]
            for item in items
        ]
        limit = self.info.max_tokens
        fits_limit = [all(len(pair) <= limit for pair in item) for item in pairs]
        fitting = [
            pair for item, fits in zip(pairs, fits_limit, strict=True) if fits for pair in item
        ]
        rows = iter(self._encoder.run(fitting, self._scores))
        return [
            RerankResult(
                tuple(map(len, item)), tuple(float(next(rows)[0]) for _ in item) if fits else ()
            )
            for item, fits in zip(pairs, fits_limit, strict=True)
        ]

    def close(self) -> None:
        """Does nothing: the end of the worker process frees the model."""

    def _scores(self, logits: Floats, _: npt.NDArray[np.int64]) -> Floats:
        if not self._encoder.folder.has_sigmoid:
            return logits
        # Sigmoid by tanh, because exp would overflow for a document with a very low score.
        return ((np.tanh(logits / 2) + 1) / 2).astype(np.float32)
