"""Settings of a Whisper model, and facts from its folder, read without loading its weights."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import DecodeError, Meta, Struct
from msgspec.json import decode as decode_json

from core.errors import ConfigError, EngineMissing
from engines.asr.whisper.decode import NO_REJECTION_THRESHOLD, UNIVERSAL_PADDINGS, DecodeRules
from engines.asr.whisper.windows import MAX_ITEM_MS
from engines.base import AsrInfo, AsrPadding

NAME = "faster_whisper"

NOTES_FILE = "earshot.json"
"Name of the file with notes in a model's folder."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `faster_whisper`."""

    model: str
    "Folder of a converted model: model.bin, config.json, tokenizer.json."
    device: Literal["auto", "cpu", "cuda"] = "auto"
    "auto: the GPU, if there is one and its libraries load."
    device_index: Annotated[int, Meta(ge=0, le=63)] = 0
    "Index of the GPU, as nvidia-smi counts them."
    compute_type: str | None = None
    "CTranslate2's number type; None: float16 on a GPU, int8 (as good as float32, faster) on a CPU."
    cpu_threads: Annotated[int, Meta(ge=0, le=256)] = 0
    "Threads on a CPU; 0: CTranslate2 decides."
    beam_size: Annotated[int, Meta(ge=1, le=10)] = 1
    "Beam size; 1 is greedy: the fastest, and worse by some tenths of a percent at most."
    temperatures: tuple[Annotated[float, Meta(ge=0, le=2)], ...] = (0.0,)
    "Temperatures; the next one is tried when the text is a loop or its words are unsure."
    padding: AsrPadding | None = None
    """Length of windows; None: as in the model's earshot.json, otherwise longest for weights that
    were measured with it (tiny.en and base, in faster_whisper), and max for others."""
    max_batch: Annotated[int, Meta(ge=1, le=64)] = 8
    no_speech_threshold: Annotated[float, Meta(ge=0, le=1)] = 0.6
    "No-speech probability above which unsure words are rejected; 1: nothing is rejected."
    log_prob_threshold: Annotated[float, Meta(le=0)] = -1.0
    "Mean log probability per token below which the words are unsure."
    min_confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    "Confidence below which a text is rejected; None: as in earshot.json, otherwise 0.25."
    max_compression_ratio: Annotated[float, Meta(gt=1)] = 2.4
    "Compression ratio above which a text is a loop, and is rejected."


class ModelNotes(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of `earshot.json` in a model's folder: facts about these weights."""

    padding: AsrPadding | None = None
    "Default padding; nopad marks weights that were trained on short windows."
    min_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.25
    "Confidence that separates speech from noise. It differs by model: small ones are always sure."
    tells_noise: bool | None = None
    """True if the model's probabilities tell noise from speech, as those of OpenAI's weights do.
    None: true for weights with OpenAI's tokenizer, which are OpenAI's or fine-tuned from them."""


def read_notes(folder: Path, settings: Settings, engine: str = NAME) -> ModelNotes:
    """Returns the notes in a model's folder; default notes if there are none.

    Raises ConfigError for notes that cannot be read, and for a padding that they forbid.
    """
    file = folder / NOTES_FILE
    try:
        notes = decode_json(file.read_bytes() if file.exists() else b"{}", type=ModelNotes)
    except DecodeError as exc:
        raise ConfigError(f"{file} cannot be read: {exc}") from exc
    if settings.padding not in (None, *paddings(notes)):
        raise ConfigError(
            f"asr.{engine}: padding nopad needs weights trained on short windows, and {folder} is "
            f"not marked as such; allowed: {', '.join(paddings(notes))}"
        )
    return notes


def paddings(notes: ModelNotes) -> tuple[AsrPadding, ...]:
    """Returns the paddings that these weights can be used with."""
    return (*UNIVERSAL_PADDINGS, "nopad") if notes.padding == "nopad" else UNIVERSAL_PADDINGS


def decode_rules(
    settings: Settings, notes: ModelNotes, usual_padding: AsrPadding = "max"
) -> DecodeRules:
    """Returns the settings, with the notes for all that the settings leave open.

    usual_padding: the padding if neither says one.
    """
    least = settings.min_confidence
    return DecodeRules(
        padding=settings.padding or notes.padding or usual_padding,
        paddings=paddings(notes),
        beam_size=settings.beam_size,
        temperatures=settings.temperatures,
        no_speech_threshold=settings.no_speech_threshold,
        log_prob_threshold=settings.log_prob_threshold,
        min_confidence=notes.min_confidence if least is None else least,
        max_compression_ratio=settings.max_compression_ratio,
    )


MODEL_FILES = ("model.bin", "config.json", "tokenizer.json")

_ENGLISH_END_TOKEN = 50_256
"End token of OpenAI's English-only models. Their table lists all languages nevertheless."

_OPENAI_END_TOKENS = (_ENGLISH_END_TOKEN, 50_257)
"End tokens of OpenAI's tokenizers: weights with another one were not trained by OpenAI."

_ENGLISH_OPTIONS = (
    *("prompt", "hotwords", "prefix", "beam_size", "temperatures", "timestamps", "padding"),
    *("no_speech_threshold", "token_logprobs"),
)
"Fields of `AsrOptions` that English-only models support."


class _Token(Struct):
    id: int
    content: str


class _TokenizerFile(Struct):
    added_tokens: list[_Token]


def describe(settings: Settings) -> AsrInfo:
    """Returns the description of a model, without loading it.

    Raises EngineMissing if the folder has no weights, ConfigError if it cannot be used.
    """
    folder = Path(settings.model)
    missing = [name for name in MODEL_FILES if not (folder / name).exists()]
    if missing:
        raise EngineMissing("asr", NAME, f"no {', '.join(missing)} in {folder}")
    notes = read_notes(folder, settings)
    languages, is_noise_known = languages_of(folder), tells_noise(folder, notes)
    # After former words, a model that cannot tell noise from speech would hear them again in noise.
    former_words = ("former_words",) if is_noise_known else ()
    return AsrInfo(
        name=NAME,
        model=folder.name,
        languages=languages or ("en",),
        max_batch=settings.max_batch,
        is_incremental=False,
        window_ms=MAX_ITEM_MS,
        supports=(*supported_options(languages), *former_words),
        paddings=paddings(notes),
        has_prompt_training=has_prompt_training(folder),
        tells_noise=is_noise_known,
        rejects_nothing=settings.no_speech_threshold >= NO_REJECTION_THRESHOLD,
    )


def supported_options(languages: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the value for `AsrInfo.supports`. languages: empty for English-only models."""
    return ("languages", "task", *_ENGLISH_OPTIONS) if languages else _ENGLISH_OPTIONS


def languages_of(folder: Path) -> tuple[str, ...]:
    """Returns the model's languages in its own order; empty for an English-only model.

    Their tokens are those between `<|startoftranscript|>` and the tasks. Raises ConfigError if
    there are no such tokens.
    """
    file = folder / "tokenizer.json"
    added = _special_tokens(file)
    ids = {token.content: token.id for token in added}
    try:
        if ids["<|endoftext|>"] == _ENGLISH_END_TOKEN:
            return ()
        first = ids["<|startoftranscript|>"] + 1
        end = min(ids["<|transcribe|>"], ids["<|translate|>"])
    except KeyError as exc:
        raise ConfigError(f"{file} has no token {exc}; is this a Whisper model?") from exc
    names = {token.id: token.content.strip("<|>") for token in added}
    return tuple(names[number] for number in range(first, end) if number in names)


def has_prompt_training(folder: Path) -> bool:
    """Returns True for OpenAI's weights, and for weights fine-tuned from them.

    They were trained with earlier text before the transcript. Other models may recognise nothing
    at all when there is such text.
    """
    tokens = _special_tokens(folder / "tokenizer.json")
    return any(
        token.content == "<|endoftext|>" and token.id in _OPENAI_END_TOKENS for token in tokens
    )


def tells_noise(folder: Path, notes: ModelNotes) -> bool:
    """Returns True if the model's probabilities tell noise from speech.

    The notes decide; without a note it is true for OpenAI's weights and those fine-tuned from them.
    """
    return has_prompt_training(folder) if notes.tells_noise is None else notes.tells_noise


def _special_tokens(file: Path) -> list[_Token]:
    try:
        return decode_json(file.read_bytes(), type=_TokenizerFile).added_tokens
    except DecodeError as exc:
        raise ConfigError(f"{file} cannot be read: {exc}") from exc
