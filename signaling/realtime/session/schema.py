"""The session object as clients send it. Only sent keys count; null takes a setting back.

A field that the hosted service knows and we have no use for is accepted: `session.updated` shows
what is in effect. What would change the answers if it were left out is refused (see `session`).
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
    "item.input_audio_transcription.logprobs",
]

LOGPROBS = "item.input_audio_transcription.logprobs"

MAX_PREFIX_PADDING_MS = 2000
"Audio kept before speech costs memory in every silent session."

MAX_SILENCE_MS = 10_000
"A longer pause is no pause: turn detection off says the same."

MAX_OUTPUT_TOKENS = 4096
"As the hosted service; `inf` is as many as the model gives."

OutputTokens = Annotated[int, Meta(ge=1, le=MAX_OUTPUT_TOKENS)]
Modalities = Annotated[list[Literal["text", "audio"]], Meta(min_length=1, max_length=1)]
Milliseconds = Annotated[int, Meta(ge=0)]
Language = Annotated[str, Meta(min_length=1, max_length=16)]
Keyword = Annotated[str, Meta(min_length=1, max_length=100)]
ToolName = Annotated[str, Meta(min_length=1, max_length=128)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
"Of a language model."
Probability = Annotated[float, Meta(ge=0, le=1)]


class InputTranscription(StrictStruct, frozen=True):
    model: OptionalField[str] = UNSET
    language: OptionalField[str] = UNSET
    prompt: OptionalField[Annotated[str, Meta(max_length=MAX_PROMPT_CHARS)]] = UNSET
    languages: OptionalField[Annotated[list[Language], Meta(max_length=100)]] = UNSET
    keywords: OptionalField[Annotated[list[Keyword], Meta(max_length=100)]] = UNSET
    delay: OptionalField[Literal["minimal", "low", "medium", "high", "xhigh"]] = UNSET


class InputNoiseReduction(StrictStruct, frozen=True):
    """For a microphone at the mouth, or one across the room."""

    type: OptionalField[Literal["near_field", "far_field"]] = UNSET
    strength: OptionalField[float] = UNSET


class TokenLimits(StrictStruct, frozen=True):
    post_instructions: OptionalField[Annotated[int, Meta(ge=0)]] = UNSET


class RetentionRatioTruncation(StrictStruct, frozen=True):
    """Its type is no tag: where no other object may stand, msgspec takes one without."""

    type: Literal["retention_ratio"]
    retention_ratio: Annotated[float, Meta(ge=0, le=1)]
    token_limits: OptionalField[TokenLimits] = UNSET


class TracingConfiguration(StrictStruct, frozen=True):
    """Known, so that clients that send it can connect: there is no dashboard to write to."""

    group_id: str | None = None
    metadata: Any = None
    workflow_name: str | None = None


class ReasoningConfiguration(StrictStruct, frozen=True):
    effort: OptionalField[ReasoningEffort] = UNSET


class ServerVad(StrictStruct, frozen=True, tag="server_vad", tag_field="type"):
    threshold: OptionalField[Annotated[float, Meta(ge=0, le=1)]] = UNSET
    prefix_padding_ms: OptionalField[Annotated[int, Meta(ge=0, le=MAX_PREFIX_PADDING_MS)]] = UNSET
    silence_duration_ms: OptionalField[Annotated[int, Meta(ge=0, le=MAX_SILENCE_MS)]] = UNSET
    create_response: OptionalField[bool] = UNSET
    interrupt_response: OptionalField[bool] = UNSET
    idle_timeout_ms: OptionalField[Annotated[int, Meta(ge=5000, le=30_000)]] = UNSET


class SemanticVad(StrictStruct, frozen=True, tag="semantic_vad", tag_field="type"):
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
    """What the hosted service has no field for; see `engines.base.AsrOptions`."""

    task: OptionalField[AsrTask] = UNSET
    prefix: OptionalField[Annotated[str, Meta(max_length=MAX_PROMPT_CHARS)]] = UNSET
    beam_size: OptionalField[Annotated[int, Meta(ge=1, le=MAX_BEAM_SIZE)]] = UNSET
    temperature: OptionalField[Probability] = UNSET
    padding: OptionalField[AsrPadding] = UNSET
    no_speech_threshold: OptionalField[Probability] = UNSET


class SessionExtension(StrictStruct, frozen=True):
    conversation_id: OptionalField[Annotated[str, Meta(min_length=1, max_length=64)]] = UNSET
    transcription: OptionalField[DecodingOptions] = UNSET
    barge_in: OptionalField[BargeInPolicy] = UNSET
    echo: OptionalField[EchoMode] = UNSET
    wake_word: OptionalField[Annotated[str, Meta(max_length=64)]] = UNSET
    temperature: OptionalField[Temperature] = UNSET
    tools: OptionalField[Annotated[list[ToolName], Meta(max_length=128)]] = UNSET


class RealtimeSession(StrictStruct, frozen=True, tag="realtime", tag_field="type"):
    """A session that answers."""

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
    """A session that only writes down what it hears."""

    audio: OptionalField[TranscriptionAudio] = UNSET
    include: OptionalField[list[Include]] = UNSET
    earshot: OptionalField[SessionExtension] = UNSET


SessionObject = RealtimeSession | TranscriptionSession
