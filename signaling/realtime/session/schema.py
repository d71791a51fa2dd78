"""The session object as clients send it. Only sent keys count; null takes a setting back.

A field that the hosted service knows and we have no use for is accepted: `session.updated` shows
what is in effect. What would change the answers if it were left out is refused (see `session`).
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta

from engines.base import Padding, Task
from media.processing.modes import EchoMode
from pipeline.shared.settings import BargeInPolicy, ReasoningEffort
from pipeline.transcription.options import MAX_BEAM_SIZE, MAX_PROMPT_CHARS
from signaling.realtime.protocol.audio_format import AudioFormat
from signaling.realtime.protocol.wire import Sent, WireStruct
from signaling.realtime.session.prompt import PromptReference
from signaling.realtime.session.tools import Choice, Tools

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


class Transcription(WireStruct, frozen=True):
    model: Sent[str] = UNSET
    language: Sent[str] = UNSET
    prompt: Sent[Annotated[str, Meta(max_length=MAX_PROMPT_CHARS)]] = UNSET
    languages: Sent[Annotated[list[Language], Meta(max_length=100)]] = UNSET
    keywords: Sent[Annotated[list[Keyword], Meta(max_length=100)]] = UNSET
    delay: Sent[Literal["minimal", "low", "medium", "high", "xhigh"]] = UNSET


class NoiseReduction(WireStruct, frozen=True):
    """For a microphone at the mouth, or one across the room."""

    type: Sent[Literal["near_field", "far_field"]] = UNSET
    strength: Sent[float] = UNSET


class TokenLimits(WireStruct, frozen=True):
    post_instructions: Sent[Annotated[int, Meta(ge=0)]] = UNSET


class RetentionRatio(WireStruct, frozen=True):
    """Its type is no tag: where no other object may stand, msgspec takes one without."""

    type: Literal["retention_ratio"]
    retention_ratio: Annotated[float, Meta(ge=0, le=1)]
    token_limits: Sent[TokenLimits] = UNSET


class Tracing(WireStruct, frozen=True):
    """Known, so that clients that send it can connect: there is no dashboard to write to."""

    group_id: str | None = None
    metadata: Any = None
    workflow_name: str | None = None


class Reasoning(WireStruct, frozen=True):
    effort: Sent[ReasoningEffort] = UNSET


class ServerVad(WireStruct, frozen=True, tag="server_vad", tag_field="type"):
    threshold: Sent[Annotated[float, Meta(ge=0, le=1)]] = UNSET
    prefix_padding_ms: Sent[Annotated[int, Meta(ge=0, le=MAX_PREFIX_PADDING_MS)]] = UNSET
    silence_duration_ms: Sent[Annotated[int, Meta(ge=0, le=MAX_SILENCE_MS)]] = UNSET
    create_response: Sent[bool] = UNSET
    interrupt_response: Sent[bool] = UNSET
    idle_timeout_ms: Sent[Annotated[int, Meta(ge=5000, le=30_000)]] = UNSET


class SemanticVad(WireStruct, frozen=True, tag="semantic_vad", tag_field="type"):
    eagerness: Sent[Literal["low", "medium", "high", "auto"]] = UNSET
    create_response: Sent[bool] = UNSET
    interrupt_response: Sent[bool] = UNSET


class AudioInput(WireStruct, frozen=True):
    format: Sent[AudioFormat] = UNSET
    noise_reduction: Sent[NoiseReduction] = UNSET
    transcription: Sent[Transcription] = UNSET
    turn_detection: Sent[ServerVad | SemanticVad] = UNSET


class VoiceId(WireStruct, frozen=True):
    id: str


class AudioOutput(WireStruct, frozen=True):
    format: Sent[AudioFormat] = UNSET
    voice: Sent[str | VoiceId] = UNSET
    speed: Sent[Annotated[float, Meta(ge=0.25, le=1.5)]] = UNSET


class Audio(WireStruct, frozen=True):
    input: Sent[AudioInput] = UNSET
    output: Sent[AudioOutput] = UNSET


class InputOnly(WireStruct, frozen=True):
    input: Sent[AudioInput] = UNSET


class Decoding(WireStruct, frozen=True):
    """What the hosted service has no field for; see `engines.base.AsrOptions`."""

    task: Sent[Task] = UNSET
    prefix: Sent[Annotated[str, Meta(max_length=MAX_PROMPT_CHARS)]] = UNSET
    beam_size: Sent[Annotated[int, Meta(ge=1, le=MAX_BEAM_SIZE)]] = UNSET
    temperature: Sent[Probability] = UNSET
    padding: Sent[Padding] = UNSET
    no_speech_threshold: Sent[Probability] = UNSET


class Extension(WireStruct, frozen=True):
    conversation_id: Sent[Annotated[str, Meta(min_length=1, max_length=64)]] = UNSET
    transcription: Sent[Decoding] = UNSET
    barge_in: Sent[BargeInPolicy] = UNSET
    echo: Sent[EchoMode] = UNSET
    wake_word: Sent[Annotated[str, Meta(max_length=64)]] = UNSET
    temperature: Sent[Temperature] = UNSET
    tools: Sent[Annotated[list[ToolName], Meta(max_length=128)]] = UNSET


class RealtimeSession(WireStruct, frozen=True, tag="realtime", tag_field="type"):
    """A session that answers."""

    model: Sent[str] = UNSET
    instructions: Sent[str] = UNSET
    output_modalities: Sent[Modalities] = UNSET
    audio: Sent[Audio] = UNSET
    include: Sent[list[Include]] = UNSET
    earshot: Sent[Extension] = UNSET
    tools: Sent[Tools] = UNSET
    tool_choice: Sent[Choice] = UNSET
    prompt: Sent[PromptReference] = UNSET
    max_output_tokens: Sent[OutputTokens | Literal["inf"]] = UNSET
    parallel_tool_calls: Sent[bool] = UNSET
    reasoning: Sent[Reasoning] = UNSET
    tracing: Sent[Literal["auto"] | Tracing] = UNSET
    truncation: Sent[Literal["auto", "disabled"] | RetentionRatio] = UNSET


class TranscriptionSession(WireStruct, frozen=True, tag="transcription", tag_field="type"):
    """A session that only writes down what it hears."""

    audio: Sent[InputOnly] = UNSET
    include: Sent[list[Include]] = UNSET
    earshot: Sent[Extension] = UNSET


SessionObject = RealtimeSession | TranscriptionSession
