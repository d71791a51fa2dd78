"""Turns the raw decoder prefix of a request into options of the recogniser."""

from core.errors import RequestError
from engines.asr.whisper.prompt import parse
from engines.base import AsrInfo, AsrOptions
from web.kserve.tensors import invalid

TEXT_PREFIX = "TEXT_PREFIX"

_ENGLISH_TAGS = ("<|en|>", "<|transcribe|>", "<|translate|>")
"Special tokens that an English-only model does not have, and needs not, to write English."


def prefix_options(prefix: str | None, info: AsrInfo) -> AsrOptions:
    """Returns the options that a prefix means to this recogniser. None: the request has no
    prefix, so the language is detected. Empty: English, as on Triton.

    Raises RequestError for a prefix that the recogniser cannot follow.
    """
    if prefix is None:
        return AsrOptions()
    if not prefix.strip():
        return AsrOptions(language="en" if "en" in info.languages else None)
    if "prefix" not in info.supports:
        return _without_prefix(prefix, info)
    if "task" not in info.supports:
        for tag in _ENGLISH_TAGS:
            prefix = prefix.replace(tag, "")
    return AsrOptions(prefix=prefix)


def _without_prefix(prefix: str, info: AsrInfo) -> AsrOptions:
    """Returns the options for a recogniser that takes no prefix: language, task and prompt."""
    parts = parse(prefix, info.languages, is_multilingual=True, param=TEXT_PREFIX)
    if parts.words:
        raise RequestError(
            f"Invalid {TEXT_PREFIX!r}: {info.name} (model {info.model}) cannot continue given"
            " words.",
            code="unsupported_parameter",
            param=TEXT_PREFIX,
        )
    tags = [tag.strip("<|>") for tag in parts.tags]
    languages = [tag for tag in tags if tag in info.languages]
    if len(languages) > 1:
        raise invalid(TEXT_PREFIX, f"{info.name} takes one language")
    return AsrOptions(
        language=languages[0] if languages else None,
        task="translate" if "translate" in tags else "transcribe",
        prompt=parts.earlier,
    )
