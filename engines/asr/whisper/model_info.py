"""What a model's folder says about it, without loading its weights."""

from pathlib import Path

from msgspec import DecodeError, Struct
from msgspec.json import decode as decode_json

from core.errors import ConfigError, EngineMissing
from engines.asr.whisper.rules import TAKES_ALL
from engines.asr.whisper.settings import NAME, ModelNotes, Settings, paddings, read_notes
from engines.asr.whisper.windows import MAX_ITEM_MS
from engines.base import AsrInfo

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
