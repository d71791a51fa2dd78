"""Decodes and checks the body of `POST /v1/audio/speech`."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from core.errors import RequestError
from web.openai.json_body import decode_json

MAX_INPUT_CHARS = 4096
"Largest number of characters of the text, as in OpenAI's service."

SoundFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]

Speed = Annotated[float, Meta(ge=0.25, le=4)]


class SpeechVoiceId(Struct, frozen=True):
    """A voice as an object."""

    id: str


class SpeechFields(Struct, frozen=True, kw_only=True):
    """Body of the request. `language` and `stream_done` are extensions of Earshot."""

    model: Annotated[
        str,
        Meta(
            description=(
                "Name of an engine from `GET /v1/models`; `tts-1` and `gpt-...` mean `default`."
            )
        ),
    ]
    input: Annotated[str, Meta(description="Text to speak, or SSML, at most 4096 characters.")]
    voice: Annotated[
        str | SpeechVoiceId,
        Meta(
            description=(
                "Name of a voice of the engine. `default`, `alloy` and so on: the language's"
                " default voice."
            )
        ),
    ]
    response_format: Annotated[
        SoundFormat,
        Meta(description="Format of the audio. `pcm`: 16-bit, 24 kHz, mono, without a header."),
    ] = "mp3"
    speed: Annotated[
        Speed | UnsetType,
        Meta(description="Rate of speech; 1 is normal. Default: 1, or the key's."),
    ] = UNSET
    instructions: Annotated[
        str,
        Meta(description="Accepted, but without effect: no engine here follows instructions."),
    ] = ""
    stream_format: Annotated[
        Literal["audio", "sse"],
        Meta(description="`sse`: the audio is sent in server-sent events."),
    ] = "audio"
    stream_done: Annotated[
        bool, Meta(description="With `sse`: end the stream with the line `data: [DONE]`.")
    ] = False
    language: Annotated[
        str,
        Meta(
            description=(
                "ISO 639-1 code or English name. Without it: the voice's language, or the"
                " language of the text."
            )
        ),
    ] = ""


def decode_body(body: bytes) -> SpeechFields:
    """Decodes the body, and checks everything that does not depend on engines. Unknown fields are
    ignored.

    Raises RequestError invalid_json, missing_required_parameter, invalid_value, empty_string,
    string_above_max_length.
    """
    fields = decode_json(body, SpeechFields)
    check_length(fields.input, "input")
    return fields


def check_length(text: str, param: str) -> None:
    """Checks the length of the text in the field `param`, with OpenAI's error messages."""
    if len(text) > MAX_INPUT_CHARS:
        raise RequestError(
            f"Invalid '{param}': string too long. Expected a string with maximum length"
            f" {MAX_INPUT_CHARS}, but got a string with length {len(text)} instead.",
            code="string_above_max_length",
            param=param,
        )
    if not text.strip():
        raise RequestError(
            f"Invalid '{param}': string too short. Expected a text with something to say.",
            code="empty_string",
            param=param,
        )
