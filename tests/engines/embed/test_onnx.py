"""Embeddings and scores are those of the network that the folder describes."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest

from core.errors import EngineError
from engines.base.text import EmbedItem, RerankItem
from engines.embed import onnx as embed
from engines.rerank import onnx as rerank
from engines.runtime.text_encoder.bert_graph import build_graph
from engines.runtime.text_encoder.folder import read_folder, read_model_kind
from tests.engines.embed.tiny_model import SIZE, hidden, ids_of, write_embedder, write_reranker

pytestmark = pytest.mark.live

TEXTS = ("cat", "dog sits on mat", "mat mat mat mat mat mat mat mat")


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_vectors_are_those_of_the_network(
    tmp_path: Path, pooling: Literal["mean", "cls", "last"]
) -> None:
    weights = write_embedder(tmp_path / "m", pooling)
    model = embed.create(embed.Settings(str(tmp_path / "m"), threads=1))
    (result,) = model.embed([EmbedItem(TEXTS)])
    assert result.tokens == (3, 6, 10)
    rows = np.frombuffer(result.vectors, "<f4").reshape(-1, SIZE)
    for text, row in zip(TEXTS, rows, strict=True):
        vectors = hidden(weights, *ids_of(text))
        pooled = {"mean": vectors.mean(axis=0), "cls": vectors[0], "last": vectors[-1]}[pooling]
        np.testing.assert_allclose(row, pooled / np.linalg.norm(pooled), atol=1e-5)


def test_a_prefix_is_added_to_texts_and_nothing_to_token_ids(tmp_path: Path) -> None:
    write_embedder(tmp_path / "m")
    model = embed.create(embed.Settings(str(tmp_path / "m"), threads=1))
    ids = tuple(ids_of("query : cat")[0])
    plain, prefixed, tokens = model.embed(
        [EmbedItem(("cat",)), EmbedItem(("cat",), "query"), EmbedItem((ids,))]
    )
    assert plain.tokens == (3,)
    assert prefixed.tokens == tokens.tokens == (5,)
    one, other = (np.frombuffer(result.vectors, "<f4") for result in (prefixed, tokens))
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_text_that_is_too_long_fails_only_its_own_item(tmp_path: Path) -> None:
    write_embedder(tmp_path / "m")
    model = embed.create(embed.Settings(str(tmp_path / "m"), threads=1))
    good, bad = model.embed([EmbedItem(("cat",)), EmbedItem(("dog", "cat " * 11))])
    assert len(good.vectors) == 4 * SIZE
    assert (bad.tokens, bad.vectors) == ((3, 13), b"")


def test_a_text_that_is_too_long_is_cut_before_its_last_token(tmp_path: Path) -> None:
    write_embedder(tmp_path / "m")
    model = embed.create(embed.Settings(str(tmp_path / "m"), threads=1))
    cut, fits = model.embed(
        [EmbedItem(("cat " * 11,), is_cut=True), EmbedItem(("cat " * 10,), is_cut=True)]
    )
    assert cut.tokens == fits.tokens == (12,)
    first, second = (np.frombuffer(result.vectors, "<f4") for result in (cut, fits))
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_scores_are_those_of_the_cross_encoder(tmp_path: Path) -> None:
    weights = write_reranker(tmp_path / "r")
    model = rerank.create(rerank.Settings(str(tmp_path / "r"), threads=1))
    (result,) = model.rerank([RerankItem("cat", TEXTS[:2])])
    for text, score in zip(TEXTS, result.scores, strict=False):
        first = hidden(weights, *ids_of("cat", text), "bert.")[0]
        pooled = np.tanh(
            weights["bert.pooler.dense.weight"] @ first + weights["bert.pooler.dense.bias"]
        )
        logit = float((weights["classifier.weight"] @ pooled + weights["classifier.bias"])[0])
        assert score == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-5)


def test_texts_of_many_lengths_get_the_vectors_that_they_have_alone(tmp_path: Path) -> None:
    write_embedder(tmp_path / "m")
    model = embed.create(embed.Settings(str(tmp_path / "m"), threads=1))
    texts = tuple("mat " * (1 + number % 10) for number in range(150))  # too many for one run
    (together,) = model.embed([EmbedItem(texts)])
    for text, row in zip(
        texts, np.frombuffer(together.vectors, "<f4").reshape(150, -1), strict=True
    ):
        (alone,) = model.embed([EmbedItem((text,))])
        np.testing.assert_allclose(row, np.frombuffer(alone.vectors, "<f4"), atol=1e-6)


def _change(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


def test_an_unusable_folder_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    assert read_model_kind(tmp_path) is None
    write_embedder(folder)
    assert read_model_kind(folder) == "embed"
    _change(folder / "1_Pooling/config.json", pooling_mode_max_tokens=True)
    with pytest.raises(EngineError, match="the pooling must be the mean"):
        read_folder(folder)
    _change(folder / "1_Pooling/config.json", pooling_mode_max_tokens=False)
    _change(folder / "config.json", hidden_size=SIZE * 2)
    with pytest.raises(EngineError, match=r"has the shape \[11, 16\], but config.json says"):
        embed.create(embed.Settings(str(folder)))
    _change(folder / "config.json", hidden_size=SIZE, model_type="mamba")
    with pytest.raises(EngineError, match=r"'mamba' needs an exported model\.onnx"):
        read_folder(folder)


def test_weights_of_a_wrong_size_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_embedder(folder)
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-4])
    with pytest.raises(EngineError, match="has a wrong size"):
        embed.create(embed.Settings(str(folder)))
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(EngineError, match="is not a safetensors file"):
        embed.create(embed.Settings(str(folder)))


def _refusal(folder: Path) -> str:
    """Returns the error of loading the model."""
    with pytest.raises(EngineError) as refused:
        embed.create(embed.Settings(str(folder), threads=1))
    return str(refused.value)


def _export(folder: Path) -> Path:
    """Replaces the checkpoint by an exported network of the same weights."""
    graph = onnx.load_model_from_string(build_graph(read_folder(folder)))
    onnx.load_external_data_for_model(graph, str(folder))
    onnx.save_model(graph, folder / "model.onnx", save_as_external_data=False)
    (folder / "model.safetensors").unlink()
    return folder / "model.onnx"


def test_an_exported_network_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    write_embedder(tmp_path / "m")
    file = _export(tmp_path / "m")
    embed.create(embed.Settings(str(tmp_path / "m"), threads=1))
    for part in (b"", file.read_bytes()[:-100]):
        file.write_bytes(part)
        assert "model.onnx cannot be loaded: Inv" in _refusal(tmp_path / "m")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"hidden_size": 24}, "model.onnx gives [16] numbers for a text, but config.json says 24"),
        ({"vocab_size": 99}, "cannot compute 12 tokens with the id 98, which config.json allows"),
        ({"max_position_embeddings": 99}, "cannot compute 99 tokens with the id 10"),
        ({"vocab_size": 10}, "tokenizer.json has 11 tokens, but config.json says vocab_size 10"),
        ({"vocab_size": 0}, "vocab_size, hidden_size and max_position_embeddings must be positive"),
        ({"pad_token_id": 11}, "pad_token_id is 11; allowed: 0 to 10"),
        ({"matryoshka_dimensions": [8, 32]}, "matryoshka_dimensions has 32; allowed: 1 to 16"),
        (
            {"max_position_embeddings": 2},
            "at most 2 tokens leave no room besides the 3 special ones",
        ),
    ],
)
def test_a_config_that_contradicts_the_network_is_refused(
    tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    write_embedder(tmp_path / "m")
    _export(tmp_path / "m")
    _change(tmp_path / "m/config.json", **changes)
    assert why in _refusal(tmp_path / "m")


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_embedder(folder)
    data = (folder / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    numbers = np.full((len(data) - start) // 4, np.nan, "<f4")
    (folder / "model.safetensors").write_bytes(data[:start] + numbers.tobytes())
    assert "model.safetensors gives numbers that are not finite" in _refusal(folder)


def test_a_tokenizer_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    write_embedder(tmp_path / "m")
    file = tmp_path / "m/tokenizer.json"
    file.write_bytes(file.read_bytes()[:-9])
    assert "tokenizer.json cannot be read" in _refusal(tmp_path / "m")
