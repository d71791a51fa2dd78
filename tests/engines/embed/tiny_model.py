"""Text models with random weights: their folders, and the same networks in numpy."""

import json
from math import erf
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

SIZE, HEADS, INNER, LAYERS, POSITIONS = 16, 4, 24, 2, 12
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", ":", "cat", "dog", "sits", "on", "mat")

Weights = dict[str, npt.NDArray[np.float32]]
Floats = npt.NDArray[np.float64]

CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "vocab_size": len(WORDS),
    "hidden_size": SIZE,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
}
MODULES = [
    {"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
    {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"},
]


def write_embedder(
    folder: Path, pooling: Literal["mean", "cls", "last"] = "mean", **config: Any
) -> Weights:
    """Writes a model with the prefix `query`, and returns its weights."""
    weights = _write(folder, {**CONFIG, **config}, prefix="")
    flags = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken"}
    (folder / "1_Pooling").mkdir()
    _json(folder / "1_Pooling/config.json", {f"pooling_mode_{flags[pooling]}": True})
    _json(folder / "modules.json", MODULES)
    _json(folder / "config_sentence_transformers.json", {"prompts": {"query": "query: "}})
    return weights


def write_reranker(folder: Path) -> Weights:
    """Writes a cross-encoder with a sigmoid, and returns its weights."""
    config = {
        **CONFIG,
        "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "LABEL_0"},
    }
    return _write(folder, config, prefix="bert.")


def hidden(weights: Weights, ids: list[int], types: list[int], prefix: str = "") -> Floats:
    """Returns the vectors of the tokens: BERT as its paper describes it."""

    def weight(name: str) -> Floats:
        return weights[f"{prefix}{name}"].astype(np.float64)

    def linear(name: str, value: Floats) -> Floats:
        return value @ weight(f"{name}.weight").T + weight(f"{name}.bias")

    def norm(name: str, value: Floats) -> Floats:
        centred = value - value.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        normed: Floats = scaled * weight(f"{name}.weight") + weight(f"{name}.bias")
        return normed

    vectors = (
        weight("embeddings.word_embeddings.weight")[ids]
        + weight("embeddings.position_embeddings.weight")[: len(ids)]
        + weight("embeddings.token_type_embeddings.weight")[types]
    )
    vectors = norm("embeddings.LayerNorm", vectors)
    for index in range(LAYERS):
        name = f"encoder.layer.{index}"
        query, key, value = (
            linear(f"{name}.attention.self.{part}", vectors).reshape(-1, HEADS, SIZE // HEADS)
            for part in ("query", "key", "value")
        )
        scores = np.exp(np.einsum("qhd,khd->hqk", query, key) / np.sqrt(SIZE // HEADS))
        shares = scores / scores.sum(axis=-1, keepdims=True)
        attended = np.einsum("hqk,khd->qhd", shares, value).reshape(-1, SIZE)
        attended = linear(f"{name}.attention.output.dense", attended)
        vectors = norm(f"{name}.attention.output.LayerNorm", attended + vectors)
        inner = linear(f"{name}.intermediate.dense", vectors)
        inner = inner * (1 + np.vectorize(erf)(inner / np.sqrt(2))) / 2
        vectors = norm(f"{name}.output.LayerNorm", linear(f"{name}.output.dense", inner) + vectors)
    return vectors


def ids_of(text: str, second: str = "") -> tuple[list[int], list[int]]:
    """Returns token ids and types."""
    first = [2, *map(WORDS.index, text.split()), 3]
    more = [*map(WORDS.index, second.split()), 3] if second else []
    return first + more, [0] * len(first) + [1] * len(more)


def _write(folder: Path, config: dict[str, Any], prefix: str) -> Weights:
    folder.mkdir(parents=True, exist_ok=True)
    _json(folder / "config.json", config)
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    weights = _random_weights(prefix)
    write_safetensors(folder / "model.safetensors", weights)
    return weights


def write_safetensors(file: Path, weights: Weights) -> None:
    """Writes a checkpoint."""
    header, data = {}, b""
    for name, tensor in weights.items():
        raw = tensor.astype("<f4").tobytes()
        place = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": place}
        data += raw
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def _random_weights(prefix: str) -> Weights:
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(WORDS), SIZE),
        "embeddings.position_embeddings.weight": (POSITIONS, SIZE),
        "embeddings.token_type_embeddings.weight": (2, SIZE),
    }
    layers: dict[str, tuple[int, ...]] = {"embeddings.LayerNorm": (SIZE,)}
    for index in range(LAYERS):
        name = f"encoder.layer.{index}"
        layers |= {f"{name}.attention.self.{part}": (SIZE, SIZE) for part in ("query", "key")}
        layers |= {
            f"{name}.attention.self.value": (SIZE, SIZE),
            f"{name}.attention.output.dense": (SIZE, SIZE),
            f"{name}.attention.output.LayerNorm": (SIZE,),
            f"{name}.intermediate.dense": (INNER, SIZE),
            f"{name}.output.dense": (SIZE, INNER),
            f"{name}.output.LayerNorm": (SIZE,),
        }
    layers["pooler.dense"] = (SIZE, SIZE)
    for name, shape in layers.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    names = {f"{prefix}{name}": shape for name, shape in shapes.items()}
    names |= {"classifier.weight": (1, SIZE), "classifier.bias": (1,)}
    random = np.random.default_rng(3)
    return {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in names.items()}


def _json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")
