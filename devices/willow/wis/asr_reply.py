"""Answers small enough for a device that reads once, at most 2048 bytes (and breaks at exactly)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from core.errors import EarshotError
from devices.willow.wis.asr import WisTranscript
from devices.willow.wis.params import shortened

MAX_REPLY_BYTES = 2047

MAX_ERROR_CHARS = 300
"Of an error's message: even with six bytes a character it fits."

ELLIPSIS = "…"


class DeviceAsrReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """As a device gets it; the three numbers only with `stats`."""

    language: str
    text: str
    infer_time: float | None = None
    "ms"
    infer_speedup: int | None = None
    audio_duration: int | None = None
    "ms"
    translation: str | None = None
    model: str | None = None
    "Which one recognised it."


class FileAsrReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of a file."""

    infer_time: float
    "ms"
    infer_speedup: int
    audio_duration: int
    "ms"
    language: str
    text: str
    translation: str | None = None
    model: str | None = None


def file_reply(heard: WisTranscript) -> bytes:
    return msgspec.json.encode(
        FileAsrReply(
            round(heard.infer_ms, 3),
            heard.speedup,
            round(heard.audio_ms),
            heard.language,
            heard.text,
            heard.translation,
            heard.model or None,
        )
    )


def device_reply(heard: WisTranscript, *, stats: bool) -> bytes:
    """At most MAX_REPLY_BYTES: a text that is too long ends at a word, with an ellipsis."""
    fields: dict[str, object] = {"language": heard.language, "text": heard.text}
    if stats:
        fields["infer_time"] = round(heard.infer_ms, 3)
        fields["infer_speedup"] = heard.speedup
        fields["audio_duration"] = round(heard.audio_ms)
    if heard.translation is not None:
        fields["translation"] = heard.translation
    if heard.model:
        fields["model"] = heard.model
    return _bounded(fields)


def _bounded(fields: Mapping[str, object]) -> bytes:
    data = msgspec.json.encode(fields)
    kept = dict(fields)
    while (excess := len(data) - MAX_REPLY_BYTES) > 0:
        name = max(("text", "translation"), key=lambda one: len(str(kept.get(one, "")).encode()))
        kept[name] = _cut(str(kept[name]), excess)
        data = msgspec.json.encode(kept)
    return data


def _cut(text: str, excess_bytes: int) -> str:
    """Shorter by at least one character; by so many bytes unless characters are escaped."""
    whole = text.removesuffix(ELLIPSIS)
    data = whole.encode()
    room = max(0, len(data) - excess_bytes - len(ELLIPSIS.encode()))
    cut = data[:room].decode(errors="ignore")
    words = cut[: cut.rfind(" ")] if " " in cut else cut
    return words.rstrip() + ELLIPSIS if words.strip() else ""


@contextmanager
def briefly() -> Iterator[None]:
    """Errors of the body, and what engines say of theirs, get short enough for a device."""
    try:
        yield
    except EarshotError as error:
        error.args = (shortened(str(error), MAX_ERROR_CHARS),)
        raise
