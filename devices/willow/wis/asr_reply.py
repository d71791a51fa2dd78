"""Responses that fit a device, which reads only once, at most 2048 bytes (and fails at exactly
2048)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from core.errors import EarshotError
from devices.willow.wis.asr import WisTranscript
from devices.willow.wis.params import shortened

MAX_REPLY_BYTES = 2047
"Largest response that the firmware can read."

MAX_ERROR_CHARS = 300
"Limit of an error's message: it fits even with six bytes per character."

ELLIPSIS = "…"


class DeviceAsrReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result for a device; the three numbers only with `stats`."""

    language: str
    text: str
    infer_time: float | None = None
    "Time from the last sample to the text, in ms."
    infer_speedup: int | None = None
    audio_duration: int | None = None
    "Length of the audio, in ms."
    translation: str | None = None
    model: str | None = None
    "Name of the model that recognised it."
    voice_auth: dict[str, str] | None = None
    "Name of the person who spoke -> score of the voice, with `voice_auth`."
    speaker_status: str | None = None
    "Line that a device shows above the text, with `voice_auth`."


class FileAsrReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result for an uploaded file."""

    infer_time: float
    "Time from the last sample to the text, in ms."
    infer_speedup: int
    audio_duration: int
    "Length of the audio, in ms."
    language: str
    text: str
    translation: str | None = None
    model: str | None = None


def file_reply(transcript: WisTranscript) -> bytes:
    """Encodes the result for an uploaded file."""
    return msgspec.json.encode(
        FileAsrReply(
            round(transcript.infer_ms, 3),
            transcript.speedup,
            round(transcript.audio_ms),
            transcript.language,
            transcript.text,
            transcript.translation,
            transcript.model or None,
        )
    )


def device_reply(transcript: WisTranscript, *, stats: bool) -> bytes:
    """Encodes the result for a device in at most MAX_REPLY_BYTES. A longer text is cut at a word,
    with an ellipsis."""
    fields: dict[str, object] = {"language": transcript.language, "text": transcript.text}
    if stats or transcript.speaker is not None:
        fields["infer_time"] = round(transcript.infer_ms, 3)
        fields["infer_speedup"] = transcript.speedup
        fields["audio_duration"] = round(transcript.audio_ms)
    if transcript.translation is not None:
        fields["translation"] = transcript.translation
    if transcript.model:
        fields["model"] = transcript.model
    if (speaker := transcript.speaker) is not None:
        fields["voice_auth"] = {speaker.name: f"{speaker.score:.3f}"}
        fields["speaker_status"] = f"{speaker.name} said:"
    return _bounded(fields)


def _bounded(fields: Mapping[str, object]) -> bytes:
    data = msgspec.json.encode(fields)
    kept = dict(fields)
    while (excess := len(data) - MAX_REPLY_BYTES) > 0:
        name = max(
            ("text", "translation"),
            key=lambda field_name: len(str(kept.get(field_name, "")).encode()),
        )
        kept[name] = _cut(str(kept[name]), excess)
        data = msgspec.json.encode(kept)
    return data


def _cut(text: str, excess_bytes: int) -> str:
    """Shortens the text by about `excess_bytes`, and by at least one character. Characters that
    JSON escapes need another call."""
    whole = text.removesuffix(ELLIPSIS)
    data = whole.encode()
    room = max(0, len(data) - excess_bytes - len(ELLIPSIS.encode()))
    cut = data[:room].decode(errors="ignore")
    words = cut[: cut.rfind(" ")] if " " in cut else cut
    return words.rstrip() + ELLIPSIS if words.strip() else ""


@contextmanager
def short_errors() -> Iterator[None]:
    """Shortens the messages of errors in the `with` block so that they fit a device."""
    try:
        yield
    except EarshotError as error:
        error.args = (shortened(str(error), MAX_ERROR_CHARS),)
        raise
