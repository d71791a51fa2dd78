"""Settings of the engine, and its description from a checkpoint's folder without the weights."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from core.errors import ConfigError, EngineMissing
from engines.asr.whisper import model_info as shared
from engines.asr.whisper.decode import NO_REJECTION_THRESHOLD
from engines.asr.whisper.model_info import (
    has_prompt_training,
    languages_of,
    supported_options,
    tells_noise,
)
from engines.asr.whisper.windows import MAX_ITEM_MS
from engines.asr.whisper_torch.checkpoint import CONFIG, TOKENIZER, read_shape
from engines.base import AsrInfo

NAME = "whisper_torch"
"Name of the engine."

WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
"Files of which a checkpoint has one: all weights, or the index of several files."

ComputeType = Literal[
    "float32",
    "float16",
    "bfloat16",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
    "fp8_float16",
    "fp8_bfloat16",
]


class Settings(shared.Settings, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine: as for `faster_whisper`, with other number types and CUDA graphs."""

    model: str
    "Folder of a checkpoint: config.json, generation_config.json, tokenizer.json, safetensors."
    compute_type: ComputeType | None = None
    "Number type; None: float16 on a GPU, float32 on a CPU. int8, fp8: less memory, but slower."
    beam_size: Annotated[int, Meta(ge=1, le=8)] = 1
    max_batch: Annotated[int, Meta(ge=1, le=256)] = 8
    "Number of rows. A beam search takes one per beam, an attempt above temperature 0 takes five."
    graphs: bool = True
    "Capture CUDA graphs at the start, if there is a GPU."
    warm_up_s: Annotated[float, Meta(ge=0, le=60)] = 20.0
    """Longest time for capturing; shapes that were not captured run kernel by kernel. A worker must
    be loaded within 120 s, half of which is reserved for the weights."""


def describe(settings: Settings) -> AsrInfo:
    """Returns the description of a checkpoint, without loading it.

    Raises EngineMissing if the folder has no weights, ConfigError if it cannot be used.
    """
    folder = Path(settings.model)
    missing = [name for name in (CONFIG, TOKENIZER) if not (folder / name).exists()]
    if not any((folder / name).exists() for name in WEIGHTS):
        missing.append(WEIGHTS[0])
    if missing:
        message = f"no {', '.join(missing)} in {folder}"
        if TOKENIZER in missing and (folder / "vocab.json").exists():
            message += f"; transformers writes {TOKENIZER} from vocab.json and merges.txt"
        raise EngineMissing("asr", NAME, message)
    read_shape(folder)
    notes = shared.read_notes(folder, settings, NAME)
    if settings.compute_type and settings.compute_type.endswith("16") and settings.device == "cpu":
        raise ConfigError(
            f"asr.{NAME}: compute_type {settings.compute_type} is for GPUs; on a CPU: float32, "
            "int8_float32"
        )
    languages = languages_of(folder)
    return AsrInfo(
        name=NAME,
        model=folder.name,
        languages=languages or ("en",),
        max_batch=settings.max_batch,
        is_incremental=False,
        window_ms=MAX_ITEM_MS,
        supports=supported_options(languages),
        paddings=shared.paddings(notes),
        has_prompt_training=has_prompt_training(folder),
        tells_noise=tells_noise(folder, notes),
        rejects_nothing=settings.no_speech_threshold >= NO_REJECTION_THRESHOLD,
    )
