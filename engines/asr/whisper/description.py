"""What a model's folder says about it, without loading its weights."""

from pathlib import Path

from msgspec import DecodeError, Struct
from msgspec.json import decode as decode_json

from core.errors import ConfigError, EngineMissing
from engines.asr.whisper.settings import NAME, Settings, read_notes
from engines.asr.whisper.windows import MAX_ITEM_MS
from engines.base import AsrInfo

FILES = ("model.bin", "config.json", "tokenizer.json")

_ENGLISH_END = 50_256
"The end token of OpenAI's English-only models, whose table lists all languages nevertheless."

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
    read_notes(folder, settings)
    languages = languages_of(folder)
    return AsrInfo(
        name=NAME,
        model=folder.name,
        languages=languages or ("en",),
        max_batch=settings.max_batch,
        is_incremental=False,
        window_ms=MAX_ITEM_MS,
        supports=supported(languages),
    )


def supported(languages: tuple[str, ...]) -> tuple[str, ...]:
    """For `AsrInfo.supports`. English-only models have no languages."""
    return ("languages", "task", *_ENGLISH) if languages else _ENGLISH


def languages_of(folder: Path) -> tuple[str, ...]:
    """Between the start of a transcript and the tasks, in the model's own order; English: none."""
    file = folder / "tokenizer.json"
    try:
        added = decode_json(file.read_bytes(), type=_TokenizerFile).added_tokens
    except DecodeError as exc:
        raise ConfigError(f"{file}: {exc}") from exc
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
