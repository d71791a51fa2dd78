"""CLIP and SigLIP models with random weights: their folders, and the same networks in numpy."""

import json
from io import BytesIO
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from tests.engines.embed.tiny_model import Weights, write_safetensors

SIZE, HEADS, INNER, LAYERS, POSITIONS = 16, 4, 24, 2, 12
IMAGE_SIZE, PATCH_SIZE = 32, 8
PATCHES = (IMAGE_SIZE // PATCH_SIZE) ** 2
DIMENSIONS = 12
"Length of CLIP's vectors; SigLIP's have SIZE numbers."

WORDS = ("<pad>", "<unk>", "a", "photo", "of", "cat", "dog", "red", "square", "<start>", "<end>")
START, END = WORDS.index("<start>"), WORDS.index("<end>")

Floats = npt.NDArray[np.float64]

TOWER = {
    "hidden_size": SIZE,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
}
TEXT = {**TOWER, "vocab_size": len(WORDS), "max_position_embeddings": POSITIONS}
VISION = {**TOWER, "image_size": IMAGE_SIZE, "patch_size": PATCH_SIZE}
CLIP: dict[str, Any] = {
    "model_type": "clip",
    "architectures": ["CLIPModel"],
    "projection_dim": DIMENSIONS,
    "text_config": {**TEXT, "bos_token_id": START, "eos_token_id": END, "pad_token_id": 0},
    "vision_config": VISION,
}
SIGLIP: dict[str, Any] = {
    "model_type": "siglip",
    "architectures": ["SiglipModel"],
    "text_config": {**TEXT, "bos_token_id": START, "eos_token_id": END, "pad_token_id": 0},
    "vision_config": VISION,
}
CLIP_IMAGES: dict[str, Any] = {
    "image_processor_type": "CLIPImageProcessor",
    "do_resize": True,
    "size": {"shortest_edge": IMAGE_SIZE},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "do_convert_rgb": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
SIGLIP_IMAGES: dict[str, Any] = {
    "image_processor_type": "SiglipImageProcessor",
    "do_resize": True,
    "size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
    "resample": 3,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


def write_clip(folder: Path, **config: Any) -> Weights:
    """Writes a CLIP model, and returns its weights. `config`: other values of config.json."""
    shapes = {
        **_tower_shapes("text_model", {"final_layer_norm": (SIZE,)}),
        "text_model.embeddings.token_embedding.weight": (len(WORDS), SIZE),
        "text_model.embeddings.position_embedding.weight": (POSITIONS, SIZE),
        "text_projection.weight": (DIMENSIONS, SIZE),
        **_tower_shapes("vision_model", {"pre_layrnorm": (SIZE,), "post_layernorm": (SIZE,)}),
        "vision_model.embeddings.class_embedding": (SIZE,),
        "vision_model.embeddings.patch_embedding.weight": (SIZE, 3, PATCH_SIZE, PATCH_SIZE),
        "vision_model.embeddings.position_embedding.weight": (PATCHES + 1, SIZE),
        "visual_projection.weight": (DIMENSIONS, SIZE),
        "logit_scale": (),
    }
    return _write(folder, {**CLIP, **config}, CLIP_IMAGES, shapes)


def write_siglip(folder: Path, **config: Any) -> Weights:
    """Writes a SigLIP model, and returns its weights."""
    head = {"head.layernorm": (SIZE,), "head.mlp.fc1": (INNER, SIZE), "head.mlp.fc2": (SIZE, INNER)}
    head |= {"post_layernorm": (SIZE,), "head.attention.out_proj": (SIZE, SIZE)}
    shapes = {
        **_tower_shapes("text_model", {"final_layer_norm": (SIZE,), "head": (SIZE, SIZE)}),
        "text_model.embeddings.token_embedding.weight": (len(WORDS), SIZE),
        "text_model.embeddings.position_embedding.weight": (POSITIONS, SIZE),
        **_tower_shapes("vision_model", head),
        "vision_model.embeddings.patch_embedding.weight": (SIZE, 3, PATCH_SIZE, PATCH_SIZE),
        "vision_model.embeddings.patch_embedding.bias": (SIZE,),
        "vision_model.embeddings.position_embedding.weight": (PATCHES, SIZE),
        "vision_model.head.probe": (1, 1, SIZE),
        "vision_model.head.attention.in_proj_weight": (3 * SIZE, SIZE),
        "vision_model.head.attention.in_proj_bias": (3 * SIZE,),
        "logit_scale": (1,),
        "logit_bias": (1,),
    }
    return _write(folder, {**SIGLIP, **config}, SIGLIP_IMAGES, shapes)


def ids_of(text: str) -> list[int]:
    """Returns the token ids of a text."""
    return [START, *map(WORDS.index, text.split()), END]


def picture(width: int = 48, height: int = 40, form: str = "PNG", seed: int = 0) -> bytes:
    """Returns the file of an image with smooth random colours."""
    from PIL import Image

    colours = np.random.default_rng(seed).integers(0, 256, (5, 7, 3), np.uint8)
    image = Image.fromarray(colours).resize((width, height), Image.Resampling.BICUBIC)
    file = BytesIO()
    image.save(file, form)
    return file.getvalue()


class Reference:
    """The networks as their papers and transformers describe them."""

    def __init__(self, weights: Weights, *, is_clip: bool) -> None:
        self._weights, self._is_clip = weights, is_clip
        self._epsilon = 1e-5 if is_clip else 1e-6

    def text(self, ids: list[int]) -> Floats:
        """Returns the vector of a text."""
        length = len(ids) if self._is_clip else POSITIONS
        ids = ids + [0] * (length - len(ids))
        hidden = self._weight("text_model.embeddings.token_embedding.weight")[ids]
        hidden = hidden + self._weight("text_model.embeddings.position_embedding.weight")[:length]
        hidden = self._layers("text_model", hidden, is_causal=self._is_clip)
        last = self._norm("text_model.final_layer_norm", hidden)[-1]
        if self._is_clip:
            projected: Floats = self._weight("text_projection.weight") @ last
            return projected
        return self._linear("text_model.head", last)

    def image(self, pixels: npt.NDArray[np.float32]) -> Floats:
        """Returns the vector of an image of shape (3, size, size)."""
        edge = IMAGE_SIZE // PATCH_SIZE
        tiles = pixels.reshape(3, edge, PATCH_SIZE, edge, PATCH_SIZE).transpose(1, 3, 0, 2, 4)
        kernel = self._weight("vision_model.embeddings.patch_embedding.weight")
        hidden = tiles.reshape(PATCHES, -1) @ kernel.reshape(SIZE, -1).T
        positions = self._weight("vision_model.embeddings.position_embedding.weight")
        if not self._is_clip:
            hidden = hidden + self._weight("vision_model.embeddings.patch_embedding.bias")
            hidden = self._layers("vision_model", hidden + positions)
            return self._pooled(self._norm("vision_model.post_layernorm", hidden))
        first = self._weight("vision_model.embeddings.class_embedding")[None]
        hidden = np.concatenate([first, hidden]) + positions
        hidden = self._layers("vision_model", self._norm("vision_model.pre_layrnorm", hidden))
        first = self._norm("vision_model.post_layernorm", hidden[0])
        return self._weight("visual_projection.weight") @ first

    def _pooled(self, hidden: Floats) -> Floats:
        name = "vision_model.head"
        matrices = np.split(self._weight(f"{name}.attention.in_proj_weight"), 3)
        biases = np.split(self._weight(f"{name}.attention.in_proj_bias"), 3)
        values = (self._weight(f"{name}.probe")[0], hidden, hidden)
        query, key, value = (
            one @ matrix.T + bias
            for one, matrix, bias in zip(values, matrices, biases, strict=True)
        )
        pooled = self._linear(f"{name}.attention.out_proj", _attention(query, key, value))[0]
        changed: Floats = self._feed_forward(f"{name}.mlp", self._norm(f"{name}.layernorm", pooled))
        summed: Floats = pooled + changed
        return summed

    def _layers(self, tower: str, hidden: Floats, *, is_causal: bool = False) -> Floats:
        for index in range(LAYERS):
            name = f"{tower}.encoder.layers.{index}"
            normed = self._norm(f"{name}.layer_norm1", hidden)
            parts = (self._linear(f"{name}.self_attn.{part}_proj", normed) for part in "qkv")
            attended = _attention(*parts, is_causal=is_causal)
            hidden = hidden + self._linear(f"{name}.self_attn.out_proj", attended)
            normed = self._norm(f"{name}.layer_norm2", hidden)
            hidden = hidden + self._feed_forward(f"{name}.mlp", normed)
        return hidden

    def _feed_forward(self, name: str, value: Floats) -> Floats:
        inner = self._linear(f"{name}.fc1", value)
        if self._is_clip:
            inner = inner / (1 + np.exp(-1.702 * inner))
        else:
            inner = inner / 2 * (1 + np.tanh(sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        return self._linear(f"{name}.fc2", inner)

    def _linear(self, name: str, value: Floats) -> Floats:
        return value @ self._weight(f"{name}.weight").T + self._weight(f"{name}.bias")

    def _norm(self, name: str, value: Floats) -> Floats:
        centred = value - value.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self._epsilon)
        normed: Floats = scaled * self._weight(f"{name}.weight") + self._weight(f"{name}.bias")
        return normed

    def _weight(self, name: str) -> Floats:
        return self._weights[name].astype(np.float64)


def _attention(query: Floats, key: Floats, value: Floats, *, is_causal: bool = False) -> Floats:
    queries, keys, values = (
        part.reshape(len(part), HEADS, SIZE // HEADS) for part in (query, key, value)
    )
    scores = np.einsum("qhd,khd->hqk", queries, keys) / sqrt(SIZE // HEADS)
    if is_causal:
        scores = np.where(np.tri(len(query), len(key), dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = shares / shares.sum(axis=-1, keepdims=True)
    attended: Floats = np.einsum("hqk,khd->qhd", shares, values).reshape(len(query), SIZE)
    return attended


def _tower_shapes(tower: str, others: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the layers of a tower, and of `others`, with their biases."""
    layers = dict(others)
    for index in range(LAYERS):
        name = f"encoder.layers.{index}"
        layers |= {f"{name}.self_attn.{part}_proj": (SIZE, SIZE) for part in ("q", "k", "v", "out")}
        layers |= {f"{name}.layer_norm{number}": (SIZE,) for number in (1, 2)}
        layers |= {f"{name}.mlp.fc1": (INNER, SIZE), f"{name}.mlp.fc2": (SIZE, INNER)}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in layers.items():
        shapes |= {f"{tower}.{name}.weight": shape, f"{tower}.{name}.bias": shape[:1]}
    return shapes


def _write(
    folder: Path,
    config: dict[str, Any],
    images: dict[str, Any],
    shapes: dict[str, tuple[int, ...]],
) -> Weights:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("config.json", config), ("preprocessor_config.json", images)):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(WORDS)}, "<unk>"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="<start> $A <end>", special_tokens=[("<start>", START), ("<end>", END)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    random = np.random.default_rng(4)
    weights = {
        name: random.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()
    }
    write_safetensors(folder / "model.safetensors", weights)
    return weights
