"""What the operator chooses for a Whisper model, and what its own folder says about it."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import DecodeError, Meta, Struct
from msgspec.json import decode as decode_json

from core.errors import ConfigError
from engines.asr.whisper.rules import ALWAYS, DecodeRules
from engines.base import AsrPadding

NAME = "faster_whisper"

NOTES_FILE = "earshot.json"
"In a model's folder."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    "Folder of a converted model: model.bin, config.json, tokenizer.json."
    device: Literal["auto", "cpu", "cuda"] = "auto"
    "auto: the GPU, if there is one and its libraries load."
    device_index: Annotated[int, Meta(ge=0, le=63)] = 0
    "Which GPU, counted as nvidia-smi counts them."
    compute_type: str | None = None
    "CTranslate2's. None: float16 on a GPU; on a CPU int8, as good as float32, smaller and faster."
    cpu_threads: Annotated[int, Meta(ge=0, le=256)] = 0
    "0 lets CTranslate2 choose."
    beam_size: Annotated[int, Meta(ge=1, le=10)] = 1
    "1 is greedy: the fastest, and within some tenths of a percent."
    temperatures: tuple[Annotated[float, Meta(ge=0, le=2)], ...] = (0.0,)
    "Each further one is tried when the one before gives a loop or unsure words."
    padding: AsrPadding | None = None
    "None: what the model's own earshot.json says, otherwise max."
    max_batch: Annotated[int, Meta(ge=1, le=64)] = 8
    no_speech_threshold: Annotated[float, Meta(ge=0, le=1)] = 0.6
    "Above it, and unsure of the words too: rejected as no speech. 1: nothing is rejected."
    log_prob_threshold: Annotated[float, Meta(le=0)] = -1.0
    "Mean log probability per token below which the words are unsure."
    min_confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    "Less sure words are rejected. None: what earshot.json says, otherwise 0.25."
    max_compression_ratio: Annotated[float, Meta(gt=1)] = 2.4
    "Text that compresses better than this is a loop, and rejected."


class ModelNotes(Struct, frozen=True, forbid_unknown_fields=True):
    """`earshot.json` in a model's folder: what is known of these weights."""

    padding: AsrPadding = "max"
    "nopad marks weights that were trained on short windows."
    min_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.25
    "Small models are sure of everything: what separates speech from noise differs by model."
    tells_noise: bool | None = None
    """Its probabilities tell noise from speech, as those of OpenAI's weights do. None: true for
    weights with OpenAI's tokenizer, which are theirs or were trained further from them."""


def read_notes(folder: Path, settings: Settings, engine: str = NAME) -> ModelNotes:
    """Raises ConfigError for notes that say nothing known, and settings that they forbid."""
    file = folder / NOTES_FILE
    try:
        notes = decode_json(file.read_bytes() if file.exists() else b"{}", type=ModelNotes)
    except DecodeError as exc:
        raise ConfigError(f"{file}: {exc}") from exc
    if settings.padding not in (None, *paddings(notes)):
        raise ConfigError(
            f"asr.{engine}: padding nopad needs weights trained on short windows, and {folder} is "
            f"not marked as such; allowed: {', '.join(paddings(notes))}"
        )
    return notes


def paddings(notes: ModelNotes) -> tuple[AsrPadding, ...]:
    """What these weights can be used with."""
    return (*ALWAYS, "nopad") if notes.padding == "nopad" else ALWAYS


def rules_of(settings: Settings, notes: ModelNotes) -> DecodeRules:
    """What was chosen, and where nothing was what is known."""
    least = settings.min_confidence
    return DecodeRules(
        padding=settings.padding or notes.padding,
        paddings=paddings(notes),
        beam_size=settings.beam_size,
        temperatures=settings.temperatures,
        no_speech_threshold=settings.no_speech_threshold,
        log_prob_threshold=settings.log_prob_threshold,
        min_confidence=notes.min_confidence if least is None else least,
        max_compression_ratio=settings.max_compression_ratio,
    )
