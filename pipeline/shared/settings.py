"""What a session is asked to do: frozen, checked by the door that builds it, changed as a whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal

import msgspec

from core.events import FormatName, Modality
from core.items import Item, ItemReference
from core.ports import ToolSpec
from engines.base import AsrInfo, AsrOptions, AsrPadding, AsrTask
from media.processing.modes import EchoMode, NoiseMode
from pipeline.shared.mcp_servers import ClientMcpServer
from pipeline.shared.prompts import NO_PROMPTS, PromptLibrary

if TYPE_CHECKING:
    from pipeline.tools.mcp.tool import ApprovalDecision  # it loads what checks arguments

PlayoutPacing = Literal["server", "client"]
"""Who plays in real time. `server`: the server sends each 20 ms when they are due, as over WebRTC.
`client`: the client gets the sound as fast as it is made, and plays it by its own clock."""

DEFAULT = "default"
"Engine and voice name that always works: whatever the server chose."

HOSTED_MODELS = ("gpt-", "whisper-1", "tts-1")
"How names of the hosted service begin. A client that knows no other gets what the server chose."


def own_model(name: str) -> str:
    """Our name for a model; those of the hosted service mean `default`."""
    return DEFAULT if name.startswith(HOSTED_MODELS) else name


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """How utterances end. `server_vad` waits `silence_ms`, `semantic_vad` as `eagerness` says."""

    kind: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: float = 0.5
    "Speech probability at and above which a frame counts as speech."
    prefix_padding_ms: int = 300
    "Audio kept from before the first speech frame: onsets are quiet."
    silence_ms: int = 500
    "Silence that ends the utterance (server_vad)."
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    "How soon to answer (semantic_vad)."
    create_response: bool = True
    interrupt_response: bool = True
    "False: what is said over an answer waits for its end."
    idle_timeout_ms: int | None = None
    "Silence after an answer that makes the assistant go on (server_vad)."


@dataclass(frozen=True, slots=True)
class ContextTruncation:
    """What happens when a conversation outgrows the context."""

    is_allowed: bool = True
    "False: the answer fails instead."
    retention: float = 0.75
    "How much of the room is kept filled when the oldest go, 0 to 1."
    max_tokens: int | None = None
    "Of the messages after the instructions; None: as many as the context takes."


AS_FITS = ContextTruncation()


BargeInPolicy = Literal["on", "off", "patient"]
"""What stops an answer: speech over it; nothing, as with `interrupt_response` false; or only words
that mean something."""


class NamedTool(msgspec.Struct, frozen=True, tag="NamedTool"):
    """The model has to call this one. (Tagged: traces tell it from the next.)"""

    name: str


class NamedMcpServer(msgspec.Struct, frozen=True, tag="NamedServer"):
    """The model has to call a tool of this MCP server of the client."""

    label: str
    name: str | None = None
    "As the server has it; None: any."


ReasoningEffort = Literal["minimal", "low", "medium", "high", "xhigh"]

ToolChoice = Literal["auto", "none", "required"] | NamedTool | NamedMcpServer
"""Whether the model calls tools in its first round: as it likes, none at all, at least one."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    answers: bool = True
    "False: transcription only."
    modality: Modality = "audio"
    "Whether answers are spoken or only written."
    instructions: str = ""
    is_uninstructed: bool = False
    "The client sent empty instructions: ours do not stand in for them."
    llm: str = DEFAULT
    asr: str = DEFAULT
    transcribes: bool = True
    "Whether the client is sent what the user said."
    language: str | None = None
    "ISO 639-1; None: what is spoken, as far as the recogniser can tell."
    languages: tuple[str, ...] = ()
    "To choose among, when `language` is not set."
    prompt: str = ""
    keywords: tuple[str, ...] = ()
    "Names and terms to expect."
    task: AsrTask = "transcribe"
    prefix: str = ""
    "Raw decoder prefix, see `AsrOptions`."
    beam_size: int | None = None
    temperature: float | None = None
    padding: AsrPadding | None = None
    no_speech_threshold: float | None = None
    logprobs: bool = False
    "Of the transcript's tokens, from recognisers that know them."
    turn_detection: TurnDetection | None = field(default_factory=TurnDetection)
    "None: the client commits and asks for responses itself."
    barge_in: BargeInPolicy = "on"
    echo: EchoMode = "off"
    "What is done about the answer in the microphone."
    noise_reduction: NoiseMode = "off"
    "What is done about noise in it, after that."
    wake_word: str = ""
    "Until it is heard, nothing else is; empty: everything is. Without effect in push-to-talk."
    answer_temperature: float | None = None
    max_output_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    "False: one call at a time, from language models that can be told so."
    reasoning_effort: ReasoningEffort | None = None
    "Of language models that think; None: as they like."
    tools: tuple[str, ...] | None = None
    "Names of the server's tools that the assistant may use; None: all."
    client_tools: tuple[ToolSpec, ...] = ()
    "Run by the client: their calls are handed out and end the response."
    mcp_servers: tuple[ClientMcpServer, ...] = ()
    "Named by the client; we connect them and call their tools."
    tool_choice: ToolChoice = "auto"
    truncation: ContextTruncation = AS_FITS
    voice: str = DEFAULT
    speed: float = 1.0
    prompts: PromptLibrary = NO_PROMPTS
    "Stored ones that its client may name in place of instructions."

    @property
    def interruption(self) -> Literal["on", "patient"] | None:
        """What stops an answer; None: nothing that is said."""
        detection = self.turn_detection
        if detection is None or not detection.interrupt_response or self.barge_in == "off":
            return None
        return self.barge_in

    @property
    def may_interrupt(self) -> bool:
        return self.interruption is not None

    def recognition(self, info: AsrInfo, expected: Sequence[str] = ()) -> AsrOptions:
        """How this recogniser is to decode what is said. `expected`: names beside the keywords, for
        a recogniser that they help."""
        also = expected if info.expects_names and "hotwords" in info.supports else ()
        only = info.languages[0] if len(info.languages) == 1 else None
        return AsrOptions(
            language=self.language or only,
            languages=self.languages,
            task=self.task,
            prompt=self.prompt,
            hotwords=", ".join(dict.fromkeys((*self.keywords, *also))),
            prefix=self.prefix,
            beam_size=self.beam_size,
            temperatures=() if self.temperature is None else (self.temperature,),
            padding=self.padding,
            no_speech_threshold=self.no_speech_threshold,
            token_logprobs=self.logprobs and "token_logprobs" in info.supports,
        )


@dataclass(frozen=True, slots=True)
class ConversationProfile:
    """How the assistant is to be in a conversation: as the client that set it last wished."""

    language: str | None
    instructions: str
    is_uninstructed: bool
    voice: str
    speed: float
    answer_temperature: float | None
    tools: tuple[str, ...] | None
    barge_in: BargeInPolicy
    echo: EchoMode

    @classmethod
    def of(cls, settings: SessionSettings) -> "ConversationProfile":
        return cls(**{one.name: getattr(settings, one.name) for one in fields(cls)})

    def applied(self, settings: SessionSettings) -> SessionSettings:
        """The settings, with what the profile remembers."""
        return replace(settings, **{one.name: getattr(self, one.name) for one in fields(self)})


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """One `response.create`: what differs from the session for this answer only; None: nothing."""

    modality: Modality | None = None
    instructions: str | None = None
    voice: str | None = None
    client_tools: tuple[ToolSpec, ...] | None = None
    mcp_servers: tuple[ClientMcpServer, ...] | None = None
    approved: "tuple[ApprovalDecision, ...]" = ()
    "Calls that were waiting for the client's consent; they come first."
    tool_choice: ToolChoice | None = None
    max_output_tokens: int | Literal["inf"] | None = None
    temperature: float | None = None
    "Of the language model, 0 to 2."
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    audio_format: FormatName | None = None
    "In which its sound is sent, where that is sent as events."
    metadata: Mapping[str, str] | None = None
    "The client's own notes, repeated in the response's events."
    in_conversation: bool = True
    "False: out of band; what it says is not remembered."
    input: tuple[Item | ItemReference, ...] | None = None
    "What the model sees in place of the conversation."
