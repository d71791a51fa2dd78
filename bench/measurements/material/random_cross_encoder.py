"""Writes a cross-encoder with random weights, to measure the cost of reranking without a download.

Its shape is that of MS MARCO MiniLM-L6. Its scores have no meaning.
"""

import json
import shutil
from collections.abc import Mapping
from math import prod
from pathlib import Path

import numpy as np

SIZE, INNER, LAYERS, HEADS, POSITIONS = 384, 1536, 6, 12, 512
"Shape of `cross-encoder/ms-marco-MiniLM-L6-v2`."

SPREAD = 0.02
"Standard deviation of the weights, as at the start of BERT's training."

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def build(folder: Path, tokenizer: Path, seed: int = 0) -> Path:
    """Writes a model for Earshot and sentence-transformers into `folder`, and returns the folder.

    tokenizer: folder of a BERT model whose tokenizer is copied.
    """
    vocabulary_size = json.loads((tokenizer / "config.json").read_text("utf-8"))["vocab_size"]
    folder.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copy(tokenizer / name, folder / name)
    config = {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        "vocab_size": vocabulary_size,
        "hidden_size": SIZE,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "pad_token_id": 0,
        "id2label": {"0": "LABEL_0"},
        "label2id": {"LABEL_0": 0},
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    _write_weights(folder / "model.safetensors", _shapes(vocabulary_size), seed)
    return folder


def _shapes(vocabulary_size: int) -> Mapping[str, tuple[int, ...]]:
    """Returns the shape of each tensor, by its name in a checkpoint."""
    linear: dict[str, tuple[int, int]] = {"bert.pooler.dense": (SIZE, SIZE)}
    norms = ["bert.embeddings.LayerNorm"]
    for number in range(LAYERS):
        layer = f"bert.encoder.layer.{number}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            linear[f"{layer}.attention.{part}"] = (SIZE, SIZE)
        linear[f"{layer}.intermediate.dense"] = (INNER, SIZE)
        linear[f"{layer}.output.dense"] = (SIZE, INNER)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    linear["classifier"] = (1, SIZE)
    embeddings = {"word": vocabulary_size, "position": POSITIONS, "token_type": 2}
    shapes: dict[str, tuple[int, ...]] = {
        f"bert.embeddings.{name}_embeddings.weight": (rows, SIZE)
        for name, rows in embeddings.items()
    }
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for name in norms:
        shapes |= {f"{name}.weight": (SIZE,), f"{name}.bias": (SIZE,)}
    return shapes


def _write_weights(file: Path, shapes: Mapping[str, tuple[int, ...]], seed: int) -> None:
    """Writes random weights as a safetensors file: length of the header, JSON header, numbers."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": (begin, end)}
    text = json.dumps(header).encode()
    random = np.random.default_rng(seed)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            weights = random.normal(0, SPREAD, shape).astype("<f4")
            if name.endswith("LayerNorm.weight"):
                weights += 1
            stream.write(weights.tobytes())
