"""What a model's folder says about it, without loading its weights."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import DecodeError, Meta, Struct
from msgspec.json import decode as decode_json

from core.errors import ConfigError, EngineMissing
from engines.asr.whisper.decode import ALWAYS, TAKES_ALL, DecodeRules
from engines.asr.whisper.windows import MAX_ITEM_MS
from engines.base import AsrInfo, AsrPadding

# What the operator chooses for a Whisper model, and what its own folder says about it.

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


FILES = ("model.bin", "config.json", "tokenizer.json")

_ENGLISH_END = 50_256
"The end token of OpenAI's English-only models, whose table lists all languages nevertheless."

_OPENAIS_ENDS = (_ENGLISH_END, 50_257)
"The end tokens of OpenAI's tokenizers: weights with another were not trained by OpenAI."

_ENGLISH = (
    *("prompt", "hotwords", "prefix", "beam_size", "temperatures", "timestamps", "padding"),
    *("no_speech_threshold", "token_logprobs"),
)


class _Token(Struct):
    id: int
    content: str


class _TokenizerFile(Struct):
    added_tokens: list[_Token]


def describe(settings: Settings) -> AsrInfo:
    """Raises EngineMissing when the folder has no weights, ConfigError when it cannot be used."""
    folder = Path(settings.model)
    missing = [name for name in FILES if not (folder / name).exists()]
    if missing:
        raise EngineMissing("asr", NAME, f"no {', '.join(missing)} in {folder}")
    notes = read_notes(folder, settings)
    languages = languages_of(folder)
    return AsrInfo(
        name=NAME,
        model=folder.name,
        languages=languages or ("en",),
        max_batch=settings.max_batch,
        is_incremental=False,
        window_ms=MAX_ITEM_MS,
        supports=supported(languages),
        paddings=paddings(notes),
        expects_names=expects_names(folder),
        tells_noise=tells_noise(folder, notes),
        takes_all=settings.no_speech_threshold >= TAKES_ALL,
    )


def supported(languages: tuple[str, ...]) -> tuple[str, ...]:
    """For `AsrInfo.supports`. English-only models have no languages."""
    return ("languages", "task", *_ENGLISH) if languages else _ENGLISH


def languages_of(folder: Path) -> tuple[str, ...]:
    """Between the start of a transcript and the tasks, in the model's own order; English: none."""
    file = folder / "tokenizer.json"
    added = _special_tokens(file)
    ids = {token.content: token.id for token in added}
    try:
        if ids["<|endoftext|>"] == _ENGLISH_END:
            return ()
        first = ids["<|startoftranscript|>"] + 1
        end = min(ids["<|transcribe|>"], ids["<|translate|>"])
    except KeyError as exc:
        raise ConfigError(f"{file}: no token {exc}; is this a Whisper model?") from exc
    names = {token.id: token.content.strip("<|>") for token in added}
    return tuple(names[number] for number in range(first, end) if number in names)


def expects_names(folder: Path) -> bool:
    """Whether these are OpenAI's weights, or fine-tuned ones: theirs were trained with earlier text
    before the transcript. Others may go deaf when there is some."""
    tokens = _special_tokens(folder / "tokenizer.json")
    return any(one.content == "<|endoftext|>" and one.id in _OPENAIS_ENDS for one in tokens)


def tells_noise(folder: Path, notes: ModelNotes) -> bool:
    """Whether the probabilities of these weights tell noise from speech: as the notes say; without
    them, whether OpenAI's training is in the weights."""
    return expects_names(folder) if notes.tells_noise is None else notes.tells_noise


def _special_tokens(file: Path) -> list[_Token]:
    try:
        return decode_json(file.read_bytes(), type=_TokenizerFile).added_tokens
    except DecodeError as exc:
        raise ConfigError(f"{file}: {exc}") from exc
