"""Session object as clients send it. A missing key changes nothing; null resets a setting.

Fields of OpenAI's service that have no use here are accepted, and `session.updated` shows what is
in effect. Fields that would change the responses are refused instead of ignored (see
`settings.py`).
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta

from engines.base import AsrPadding, AsrTask
from media.processing.modes import EchoMode
from pipeline.shared.settings import BargeInPolicy, ReasoningEffort
from pipeline.transcription.options import MAX_BEAM_SIZE, MAX_PROMPT_CHARS
from signaling.realtime.protocol.audio_format import AudioFormat
from signaling.realtime.protocol.structs import OptionalField, StrictStruct
from signaling.realtime.session.prompt import PromptReference
from signaling.realtime.session.tools import ToolChoiceObject, ToolDefinitions

Include = Literal[
    "earshot.hypothesis",
    "earshot.turn",
    "earshot.home",
    "earshot.connection",
    "earshot.wake",
    "earshot.tool",
    "item.input_audio_transcription.logprobs",
]
"Events and fields that clients get only on request."

LOGPROBS = "item.input_audio_transcription.logprobs"

MAX_PREFIX_PADDING_MS = 2000
"Limit in ms, since audio kept before speech costs memory in every silent session."

MAX_SILENCE_MS = 10_000
"Limit in ms. A longer pause has the same effect as no turn detection."

MAX_OUTPUT_TOKENS = 4096
"Limit of OpenAI's service. `inf` means as many as the model produces."

OutputTokens = Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS)]
Modalities = Annotated[list[Literal["text", "audio"]], Meta(min_length=1, max_length=1)]
Milliseconds = Annotated[int, Meta(ge=0)]
Language = Annotated[str, Meta(min_length=1, max_length=16)]
Keyword = Annotated[str, Meta(min_length=1, max_length=100)]
ToolName = Annotated[str, Meta(min_length=1, max_length=128)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
"Sampling temperature of a language model."
Probability = Annotated[float, Meta(ge=0, le=1)]


class InputTranscription(StrictStruct, frozen=True):
    """Transcription settings."""

    model: OptionalField[str] = UNSET
    language: OptionalField[str] = UNSET
    prompt: OptionalField[Annotated[str, Meta(max_length=MAX_PROMPT_CHARS)]] = UNSET
    languages: OptionalField[Annotated[list[Language], Meta(max_length=100)]] = UNSET
    keywords: OptionalField[Annotated[list[Keyword], Meta(max_length=100)]] = UNSET
    delay: OptionalField[Literal["minimal", "low", "medium", "high", "xhigh"]] = UNSET


class InputNoiseReduction(StrictStruct, frozen=True):
    """Noise reduction for a microphone at the mouth (near_field) or across the room (far_field)."""

    type: OptionalField[Literal["near_field", "far_field"]] = UNSET
    strength: OptionalField[float] = UNSET


class TokenLimits(StrictStruct, frozen=True):
    post_instructions: OptionalField[Annotated[int, Meta(ge=0)]] = UNSET


class RetentionRatioTruncation(StrictStruct, frozen=True):
    """Truncation that keeps a share of the context window. Its type is a plain field, not a tag:
    msgspec accepts an object without its tag where no other object may stand."""

    type: Literal["retention_ratio"]
    retention_ratio: Annotated[float, Meta(ge=0, le=1)]
    token_limits: OptionalField[TokenLimits] = UNSET


class TracingConfiguration(StrictStruct, frozen=True):
    """Accepted so that clients that send it can connect. It has no effect: there is no
    dashboard."""

    group_id: str | None = None
    metadata: Any = None
    workflow_name: str | None = None


class ReasoningConfiguration(StrictStruct, frozen=True):
    effort: OptionalField[ReasoningEffort] = UNSET


class ServerVad(StrictStruct, frozen=True, tag="server_vad", tag_field="type"):
    """Turn detection by a fixed silence after the speech."""

    threshold: OptionalField[Annotated[float, Meta(ge=0, le=1)]] = UNSET
    prefix_padding_ms: OptionalField[Annotated[int, Meta(ge=0, le=MAX_PREFIX_PADDING_MS)]] = UNSET
    silence_duration_ms: OptionalField[Annotated[int, Meta(ge=0, le=MAX_SILENCE_MS)]] = UNSET
    create_response: OptionalField[bool] = UNSET
    interrupt_response: OptionalField[bool] = UNSET
    idle_timeout_ms: OptionalField[Annotated[int, Meta(ge=5000, le=30_000)]] = UNSET


class SemanticVad(StrictStruct, frozen=True, tag="semantic_vad", tag_field="type"):
    """Turn detection that also estimates how likely the turn is over."""

    eagerness: OptionalField[Literal["low", "medium", "high", "auto"]] = UNSET
    create_response: OptionalField[bool] = UNSET
    interrupt_response: OptionalField[bool] = UNSET


class AudioInput(StrictStruct, frozen=True):
    format: OptionalField[AudioFormat] = UNSET
    noise_reduction: OptionalField[InputNoiseReduction] = UNSET
    transcription: OptionalField[InputTranscription] = UNSET
    turn_detection: OptionalField[ServerVad | SemanticVad] = UNSET


class VoiceId(StrictStruct, frozen=True):
    id: str


class AudioOutput(StrictStruct, frozen=True):
    format: OptionalField[AudioFormat] = UNSET
    voice: OptionalField[str | VoiceId] = UNSET
    speed: OptionalField[Annotated[float, Meta(ge=0.25, le=1.5)]] = UNSET


class SessionAudio(StrictStruct, frozen=True):
    input: OptionalField[AudioInput] = UNSET
    output: OptionalField[AudioOutput] = UNSET


class TranscriptionAudio(StrictStruct, frozen=True):
    input: OptionalField[AudioInput] = UNSET


class DecodingOptions(StrictStruct, frozen=True):
    """Decoding options that OpenAI's service does not have; see `engines.base.AsrOptions`."""

    task: OptionalField[AsrTask] = UNSET
    prefix: OptionalField[Annotated[str, Meta(max_length=MAX_PROMPT_CHARS)]] = UNSET
    beam_size: OptionalField[Annotated[int, Meta(ge=1, le=MAX_BEAM_SIZE)]] = UNSET
    temperature: OptionalField[Probability] = UNSET
    padding: OptionalField[AsrPadding] = UNSET
    no_speech_threshold: OptionalField[Probability] = UNSET


class SessionExtension(StrictStruct, frozen=True):
    """Settings that OpenAI's service does not have, in the field `earshot`."""

    conversation_id: OptionalField[Annotated[str, Meta(min_length=1, max_length=64)]] = UNSET
    transcription: OptionalField[DecodingOptions] = UNSET
    barge_in: OptionalField[BargeInPolicy] = UNSET
    echo: OptionalField[EchoMode] = UNSET
    wake_word: OptionalField[Annotated[str, Meta(max_length=64)]] = UNSET
    area: OptionalField[Annotated[str, Meta(max_length=64, pattern=r"^[^\x00-\x1f]*$")]] = UNSET
    temperature: OptionalField[Temperature] = UNSET
    tools: OptionalField[Annotated[list[ToolName], Meta(max_length=128)]] = UNSET


class RealtimeSession(StrictStruct, frozen=True, tag="realtime", tag_field="type"):
    """Session with responses."""

    model: OptionalField[str] = UNSET
    instructions: OptionalField[str] = UNSET
    output_modalities: OptionalField[Modalities] = UNSET
    audio: OptionalField[SessionAudio] = UNSET
    include: OptionalField[list[Include]] = UNSET
    earshot: OptionalField[SessionExtension] = UNSET
    tools: OptionalField[ToolDefinitions] = UNSET
    tool_choice: OptionalField[ToolChoiceObject] = UNSET
    prompt: OptionalField[PromptReference] = UNSET
    max_output_tokens: OptionalField[OutputTokens | Literal["inf"]] = UNSET
    parallel_tool_calls: OptionalField[bool] = UNSET
    reasoning: OptionalField[ReasoningConfiguration] = UNSET
    tracing: OptionalField[Literal["auto"] | TracingConfiguration] = UNSET
    truncation: OptionalField[Literal["auto", "disabled"] | RetentionRatioTruncation] = UNSET


class TranscriptionSession(StrictStruct, frozen=True, tag="transcription", tag_field="type"):
    """Session that only transcribes."""

    audio: OptionalField[TranscriptionAudio] = UNSET
    include: OptionalField[list[Include]] = UNSET
    earshot: OptionalField[SessionExtension] = UNSET


SessionObject = RealtimeSession | TranscriptionSession
