"""Reads the description of a CLIP or SigLIP model from its folder: the sizes of both towers, and
how an image is prepared. The files are those of transformers. No weights are read."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from core.errors import EngineError
from engines.base.text import TextModelInfo
from engines.runtime.model_files.checkpoint_graph import CHECKPOINT_FILE
from engines.runtime.text_encoder.folder import read_json

MAX_BATCH = 8
"""Largest number of items in one call. An item has at most one image of MAX_IMAGE_BYTES, so a call
fits into one message to the worker, 64 MiB."""

MAX_IMAGE_PIXELS = 4096
"Largest width of a tower's input images, in pixels; known models have at most 512."

TEXT_FILES = ("text_model.onnx", "onnx/text_model.onnx")
"Places of an exported tower for texts, the preferred first."
IMAGE_FILES = ("vision_model.onnx", "onnx/vision_model.onnx")
"Places of an exported tower for images."

PROCESSOR_FILE, JOINT_PROCESSOR_FILE = "preprocessor_config.json", "processor_config.json"
"Files that say how an image is prepared. Version 5 of transformers writes the second one."

BILINEAR, BICUBIC = 2, 3
"Codes of the filters for scaling, in PIL and in `resample`."

ACTIVATIONS = ("quick_gelu", "gelu", "gelu_pytorch_tanh")
"Activation functions that are supported."

Count = Annotated[int, Meta(gt=0, le=2**20)]
"A size in a configuration. No known model has a larger one."


class TowerConfig(Struct, frozen=True):
    """Sizes of a tower. The defaults of the fields are those of transformers for CLIP's texts,
    because newer versions of transformers write only what differs from them."""

    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    hidden_act: str
    layer_norm_eps: float

    # For texts:
    vocab_size: Count = 49_408
    max_position_embeddings: Annotated[int, Meta(gt=2, le=4096)] = 77
    eos_token_id: int = 49_407
    pad_token_id: int | None = 1
    projection_size: Count | None = None
    "Length of SigLIP's vectors; None: `hidden_size`."

    # For images:
    image_size: Annotated[int, Meta(gt=0, le=MAX_IMAGE_PIXELS)] = 224
    "Width and height in pixels."
    patch_size: Count = 32
    num_channels: Count = 3
    vision_use_head: bool = True

    @property
    def patches(self) -> int:
        """Number of patches of an image."""
        return (self.image_size // self.patch_size) ** 2


_CLIP_TEXT: dict[str, Any] = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
}
_CLIP_VISION: dict[str, Any] = {
    **_CLIP_TEXT,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
}
_SIGLIP: dict[str, Any] = {
    **_CLIP_VISION,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
    "vocab_size": 32_000,
    "max_position_embeddings": 64,
    "patch_size": 16,
}

DEFAULTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "clip": (_CLIP_TEXT, _CLIP_VISION),
    "siglip": (_SIGLIP, _SIGLIP),
}
"Type of a model -> defaults of transformers for its towers: texts, images."


class _ClipConfig(Struct):
    """Part of config.json."""

    model_type: str = ""
    projection_dim: Count = 512
    text_config: dict[str, Any] = {}
    vision_config: dict[str, Any] = {}


class _ImageSize(Struct):
    """A size in preprocessor_config.json."""

    shortest_edge: int | None = None
    height: int | None = None
    width: int | None = None


class _ProcessorConfig(Struct):
    """Part of preprocessor_config.json. The defaults are those of CLIP."""

    do_resize: bool = True
    size: int | _ImageSize | None = None
    resample: int | None = None
    do_center_crop: bool | None = None
    crop_size: int | _ImageSize | None = None
    do_rescale: bool = True
    rescale_factor: float = 1 / 255
    do_normalize: bool = True
    image_mean: tuple[float, float, float] | None = None
    image_std: tuple[float, float, float] | None = None


class _JointProcessorConfig(Struct):
    """Part of processor_config.json."""

    image_processor: _ProcessorConfig


class _TokenizerConfig(Struct):
    """Part of tokenizer_config.json."""

    pad_token: str | dict[str, Any] | None = None
    do_lower_case: bool = False


@dataclass(frozen=True, slots=True)
class ImagePreparation:
    """Steps that turn an image into the values that a tower takes."""

    size: int
    "Width and height of the result in pixels."
    resized_edge: int | None
    """Length of the shorter edge after scaling, in pixels; the middle is then cut out. None: the
    image is scaled to `size` without keeping its proportions."""
    filter: int
    "BILINEAR or BICUBIC."
    rescale_factor: float
    "Factor on the colours, which are 0 to 255; then `mean` is subtracted and divided by `std`."
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class ImageTextFolder:
    """A CLIP or SigLIP model, as its files describe it."""

    path: Path
    family: Literal["clip", "siglip"]
    text: TowerConfig = field(repr=False)
    vision: TowerConfig = field(repr=False)
    info: TextModelInfo
    preparation: ImagePreparation
    pad_token: str = ""
    "Padding token of texts; empty: its id is in tokenizer.json or config.json."

    @property
    def text_file(self) -> Path | None:
        """The exported tower for texts; None if there is only a checkpoint."""
        return _first(self.path, TEXT_FILES)

    @property
    def image_file(self) -> Path | None:
        """The exported tower for images; None if there is only a checkpoint."""
        return _first(self.path, IMAGE_FILES)


def read_image_text_folder(path: Path) -> ImageTextFolder:
    """Reads the files that describe a model. Raises EngineError, which names the file, if one is
    missing or says something that is not supported."""
    for name in ("config.json", "tokenizer.json"):
        if not (path / name).is_file():
            raise _error(path, f"has no {name}")
    config = read_json(path / "config.json", _ClipConfig)
    if config.model_type not in DEFAULTS:
        allowed = ", ".join(DEFAULTS)
        why = f"config.json: model_type {config.model_type!r} is not supported; allowed: {allowed}"
        raise _error(path, why)
    is_clip = config.model_type == "clip"
    text_defaults, vision_defaults = DEFAULTS[config.model_type]
    text = _tower(path, "text_config", {**text_defaults, **config.text_config})
    vision = _tower(path, "vision_config", {**vision_defaults, **config.vision_config})
    dimensions = config.projection_dim if is_clip else text.projection_size or text.hidden_size
    _check_towers(path, vision, None if is_clip else dimensions)
    tokenizer = _TokenizerConfig()
    if (path / "tokenizer_config.json").is_file():
        tokenizer = read_json(path / "tokenizer_config.json", _TokenizerConfig)
    pad = tokenizer.pad_token
    info = TextModelInfo(
        name="onnx",
        model=path.name,
        max_batch=MAX_BATCH,
        max_tokens=text.max_position_embeddings,
        vocabulary_size=text.vocab_size,
        dimensions=dimensions,
        is_normalized=False,
        has_images=True,
    )
    return ImageTextFolder(
        path,
        "clip" if is_clip else "siglip",
        text,
        vision,
        info,
        _preparation(path, vision, is_clip=is_clip),
        pad_token=str(pad.get("content", "")) if isinstance(pad, dict) else pad or "",
    )


def _tower(path: Path, section: str, values: dict[str, Any]) -> TowerConfig:
    try:
        tower = msgspec.convert(values, TowerConfig)
    except msgspec.ValidationError as error:
        raise _error(path, f"config.json: {section}: {error}") from error
    if tower.hidden_size % tower.num_attention_heads:
        heads = tower.num_attention_heads
        why = f"hidden_size {tower.hidden_size} must be a multiple of num_attention_heads {heads}"
        raise _error(path, f"config.json: {section}: {why}")
    if tower.hidden_act not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        why = f"hidden_act {tower.hidden_act!r} is not supported; allowed: {allowed}"
        raise _error(path, f"config.json: {section}: {why}")
    return tower


def _check_towers(path: Path, vision: TowerConfig, dimensions: int | None) -> None:
    """Raises EngineError if the towers are not supported or do not fit together, or if their
    weights are missing. `dimensions`: length of SigLIP's vectors of texts; None for CLIP."""
    if vision.num_channels != 3 or vision.patch_size > vision.image_size:
        why = "images must have 3 channels and at least one patch"
        raise _error(path, f"config.json: vision_config: {why}")
    if dimensions is not None and (dimensions != vision.hidden_size or not vision.vision_use_head):
        why = f"vectors of images have {vision.hidden_size} numbers, those of texts {dimensions}"
        if not vision.vision_use_head:
            why = "vision_config: vision_use_head must be true"
        raise _error(path, f"config.json: {why}")
    has_text, has_images = (_first(path, names) for names in (TEXT_FILES, IMAGE_FILES))
    if not (path / CHECKPOINT_FILE).is_file() and not (has_text and has_images):
        why = f"has neither {CHECKPOINT_FILE} nor both of {TEXT_FILES[1]} and {IMAGE_FILES[1]}"
        raise _error(path, why)


def _preparation(path: Path, vision: TowerConfig, *, is_clip: bool) -> ImagePreparation:
    if (path / PROCESSOR_FILE).is_file():
        name, config = PROCESSOR_FILE, read_json(path / PROCESSOR_FILE, _ProcessorConfig)
    elif (path / JOINT_PROCESSOR_FILE).is_file():
        joint = read_json(path / JOINT_PROCESSOR_FILE, _JointProcessorConfig)
        name, config = JOINT_PROCESSOR_FILE, joint.image_processor
    else:
        raise _error(path, f"has no {PROCESSOR_FILE}")
    if not config.do_resize or not config.do_rescale:
        raise _error(path, f"{name}: do_resize and do_rescale must be true")
    is_cropped = is_clip if config.do_center_crop is None else config.do_center_crop
    target = vision.image_size
    # A single number means the shorter edge for CLIP, and both edges for SigLIP.
    size = _extent(config.size, target, is_shortest=is_clip)
    crop = _extent(config.crop_size, target, is_shortest=False)
    resized_edge = size.shortest_edge
    if resized_edge is not None and not is_cropped:
        raise _error(path, f"{name}: size.shortest_edge needs do_center_crop")
    result = crop if is_cropped else size
    if (result.height, result.width) != (target, target):
        why = f"images become {result.width} x {result.height} pixels, config.json says {target}"
        raise _error(path, f"{name}: {why}")
    if resized_edge is None and (size.height, size.width) != (target, target):
        raise _error(path, f"{name}: size and crop_size must be equal without shortest_edge")
    if resized_edge is not None and not target <= resized_edge <= 2 * target:
        raise _error(path, f"{name}: size.shortest_edge must be {target} to {2 * target}")
    resample = config.resample or BICUBIC
    if resample not in (BILINEAR, BICUBIC):
        raise _error(path, f"{name}: resample must be {BILINEAR} or {BICUBIC}")
    has_norm = config.do_normalize
    mean, std = CLIP_NORM if is_clip else SIGLIP_NORM
    std = config.image_std or std
    if has_norm and min(std) <= 0:
        raise _error(path, f"{name}: image_std must be positive")
    return ImagePreparation(
        target,
        resized_edge,
        resample,
        config.rescale_factor,
        (config.image_mean or mean) if has_norm else (0.0, 0.0, 0.0),
        std if has_norm else (1.0, 1.0, 1.0),
    )


RgbValues = tuple[float, float, float]

CLIP_NORM: tuple[RgbValues, RgbValues] = (
    (0.48145466, 0.4578275, 0.40821073),
    (0.26862954, 0.26130258, 0.27577711),
)
"Mean and standard deviation of red, green and blue, if the file has none."
SIGLIP_NORM: tuple[RgbValues, RgbValues] = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def _extent(size: int | _ImageSize | None, default: int, *, is_shortest: bool) -> _ImageSize:
    """Returns a size as an object. An older file has one number. `is_shortest`: that number is the
    length of the shorter edge, not of both."""
    if isinstance(size, _ImageSize):
        return size
    length = size or default
    return _ImageSize(length) if is_shortest else _ImageSize(None, length, length)


def _first(path: Path, names: tuple[str, ...]) -> Path | None:
    return next((path / name for name in names if (path / name).is_file()), None)


def _error(path: Path, why: str) -> EngineError:
    return EngineError("clip", path.name, why)
