"""A cross-encoder with random weights can be loaded and gives scores."""

from pathlib import Path

import pytest

from bench.measurements.material import random_cross_encoder
from engines.base.text import RerankItem
from engines.rerank import onnx as rerank
from tests.engines.embed.tiny_model import write_embedder

pytestmark = pytest.mark.live


def test_each_document_gets_a_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"SIZE": 24, "INNER": 48, "LAYERS": 2, "HEADS": 2, "POSITIONS": 32}.items():
        monkeypatch.setattr(random_cross_encoder, name, size)
    write_embedder(tmp_path / "embedder")
    folder = random_cross_encoder.build(tmp_path / "reranker", tmp_path / "embedder")
    model = rerank.create(rerank.Settings(str(folder), threads=1))
    assert model.info.max_tokens == 32
    (result,) = model.rerank([RerankItem("cat", ("dog sits", "mat"))])
    assert result.tokens == (6, 5)
    assert all(0 < score < 1 for score in result.scores)
