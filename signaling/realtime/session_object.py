"""The session object as clients send it. Only sent keys count; null takes a setting back.

A field that the hosted service knows and we have no use for is accepted: `session.updated` shows
what is in effect. What would change the answers if it were left out is refused (see `session`).
"""

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

T = TypeVar("T")
Sent: TypeAlias = T | UnsetType | None
"UNSET: the client did not send this key."

Include = Literal[
    "earshot.hypothesis",
    "earshot.turn",
    "earshot.home",
    "item.input_audio_transcription.logprobs",
]

MAX_PREFIX_PADDING_MS = 2000
"Audio kept before speech costs memory in every silent session."

MAX_SILENCE_MS = 10_000
"A longer pause is no pause: turn detection off says the same."

Modalities = Annotated[list[Literal["text", "audio"]], Meta(min_length=1, max_length=1)]
Milliseconds = Annotated[int, Meta(ge=0)]


class WireStruct(Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object in which every key must be known."""


class PcmFormat(WireStruct, frozen=True):
    type: Literal["audio/pcm"]
    rate: Literal[24000] = 24000


class Transcription(WireStruct, frozen=True):
    model: Sent[str] = UNSET
    language: Sent[str] = UNSET
    prompt: Sent[str] = UNSET
    languages: Any = UNSET
    keywords: Any = UNSET
    delay: Any = UNSET


class ServerVad(WireStruct, frozen=True, tag="server_vad", tag_field="type"):
    threshold: Sent[Annotated[float, Meta(ge=0, le=1)]] = UNSET
    prefix_padding_ms: Sent[Annotated[int, Meta(ge=0, le=MAX_PREFIX_PADDING_MS)]] = UNSET
    silence_duration_ms: Sent[Annotated[int, Meta(ge=0, le=MAX_SILENCE_MS)]] = UNSET
    create_response: Sent[bool] = UNSET
    interrupt_response: Sent[bool] = UNSET
    idle_timeout_ms: Any = UNSET


class SemanticVad(WireStruct, frozen=True, tag="semantic_vad", tag_field="type"):
    eagerness: Sent[Literal["low", "medium", "high", "auto"]] = UNSET
    create_response: Sent[bool] = UNSET
    interrupt_response: Sent[bool] = UNSET


class AudioInput(WireStruct, frozen=True):
    format: Sent[PcmFormat] = UNSET
    noise_reduction: Any = UNSET
    transcription: Sent[Transcription] = UNSET
    turn_detection: Sent[ServerVad | SemanticVad] = UNSET


class VoiceId(WireStruct, frozen=True):
    id: str


class AudioOutput(WireStruct, frozen=True):
    format: Sent[PcmFormat] = UNSET
    voice: Sent[str | VoiceId] = UNSET
    speed: Sent[Annotated[float, Meta(ge=0.25, le=1.5)]] = UNSET


class Audio(WireStruct, frozen=True):
    input: Sent[AudioInput] = UNSET
    output: Sent[AudioOutput] = UNSET


class InputOnly(WireStruct, frozen=True):
    input: Sent[AudioInput] = UNSET


class Extension(WireStruct, frozen=True):
    conversation_id: Sent[Annotated[str, Meta(min_length=1, max_length=64)]] = UNSET


class RealtimeSession(WireStruct, frozen=True, tag="realtime", tag_field="type"):
    """A session that answers."""

    model: Sent[str] = UNSET
    instructions: Sent[str] = UNSET
    output_modalities: Sent[Modalities] = UNSET
    audio: Sent[Audio] = UNSET
    include: Sent[list[Include]] = UNSET
    earshot: Sent[Extension] = UNSET
    tools: Sent[list[dict[str, Any]]] = UNSET
    tool_choice: Sent[str | dict[str, Any]] = UNSET
    prompt: Sent[dict[str, Any]] = UNSET
    max_output_tokens: Any = UNSET
    parallel_tool_calls: Any = UNSET
    reasoning: Any = UNSET
    tracing: Any = UNSET
    truncation: Any = UNSET


class TranscriptionSession(WireStruct, frozen=True, tag="transcription", tag_field="type"):
    """A session that only writes down what it hears."""

    audio: Sent[InputOnly] = UNSET
    include: Sent[list[Include]] = UNSET
    earshot: Sent[Extension] = UNSET


SessionObject = RealtimeSession | TranscriptionSession
