"""Settings of a session: frozen, checked by the door that builds them, and replaced as a whole."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from core.conversation.events import FormatName, Modality
from core.conversation.items import Item, ItemReference
from core.ports import ToolSpec
from engines.base import AnswerFormat, AsrInfo, AsrOptions, AsrPadding, AsrTask
from media.processing.modes import EchoMode, NoiseMode
from pipeline.shared.mcp_servers import ClientMcpServer
from pipeline.shared.prompts import NO_PROMPTS, PromptLibrary

if TYPE_CHECKING:
    from pipeline.tools.mcp.tool import ApprovalDecision  # its import loads the argument checker

PlayoutPacing = Literal["server", "client"]
"""Pace of the playout. `server`: the server sends each 20 ms when they are due, as over WebRTC.
`client`: the client gets the sound as fast as it is made, and plays it by its own clock."""

DEFAULT = "default"
"Name of an engine or voice that always works: the one that the server's configuration chose."

OPENAI_MODEL_PREFIXES = ("gpt-", "whisper-1", "tts-1")
"""Prefixes of the model names of OpenAI's service. Such a name means `default`, so that clients
which know no other name work."""


def own_model(name: str) -> str:
    """Returns our name for a model: `default` for a name of OpenAI's service."""
    return DEFAULT if name.startswith(OPENAI_MODEL_PREFIXES) else name


@dataclass(frozen=True, slots=True)
class TurnDetection:
    """Rule for the end of utterances. `server_vad` waits `silence_ms`; `semantic_vad` waits as
    `eagerness` says."""

    kind: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: float = 0.5
    "VAD probability (0 to 1) from which a frame counts as speech."
    prefix_padding_ms: int = 300
    "Pre-roll: audio kept from before the first speech frame, because onsets are quiet."
    silence_ms: int = 500
    "Silence that ends the utterance (server_vad)."
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    "Speed of the answer (semantic_vad)."
    create_response: bool = True
    "True if the end of an utterance starts a response."
    interrupt_response: bool = True
    "False: speech over an answer waits for the end of the answer."
    idle_timeout_ms: int | None = None
    "Silence after an answer until the assistant speaks again by itself (server_vad); None: never."


@dataclass(frozen=True, slots=True)
class ContextTruncation:
    """Rule for a conversation that outgrows the context window."""

    is_allowed: bool = True
    "True if old items may be left out; otherwise the response fails."
    retention: float = 0.75
    "Share of the room that stays filled when the oldest items are dropped, 0 to 1."
    max_tokens: int | None = None
    "Most tokens of the messages after the instructions; None: as many as the context window takes."


AS_FITS = ContextTruncation()


BargeInPolicy = Literal["on", "off", "patient", "wake_word"]
"""Speech that stops an answer. on: any speech over it. off: none, as with `interrupt_response`
false. patient: only words that mean something. wake_word: while it sounds, only the wake word or a
word that means stop (ADR 105)."""

InterruptingSpeech = Literal["on", "patient", "wake_word"]
"A `BargeInPolicy` with which some speech stops an answer."


class NamedTool(msgspec.Struct, frozen=True, tag="NamedTool"):
    """Tool that the model has to call. (Tagged, so that traces tell it from the next class.)"""

    name: str


class NamedMcpServer(msgspec.Struct, frozen=True, tag="NamedServer"):
    """MCP server of the client; the model has to call a tool of it."""

    label: str
    name: str | None = None
    "Name of the tool, as the server has it; None: any."


ReasoningEffort = Literal["minimal", "low", "medium", "high", "xhigh"]

ToolChoice = Literal["auto", "none", "required"] | NamedTool | NamedMcpServer
"""Use of tools in the model's first round. auto: as it likes. none: no tool. required: at least
one. Or the tool that it must call."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings of one session, as its client chose them. Immutable: a change makes a new object."""

    answers: bool = True
    "False: the session only transcribes."
    modality: Modality = "audio"
    "Form of the answers: spoken or only written."
    instructions: str = ""
    is_uninstructed: bool = False
    "True if the client sent empty instructions, so that the built-in ones are not used."
    llm: str = DEFAULT
    "Name of the language model."
    asr: str = DEFAULT
    "Name of the recogniser."
    transcribes: bool = True
    "True if the client receives the user's transcripts."
    language: str | None = None
    "ISO 639-1; None: the spoken language, as far as the recogniser can detect it."
    languages: tuple[str, ...] = ()
    "Candidates for the spoken language, when `language` is None."
    prompt: str = ""
    "Text that precedes the speech, as a hint to the recogniser."
    keywords: tuple[str, ...] = ()
    "Names and terms that the recogniser should expect."
    task: AsrTask = "transcribe"
    "translate: into English."
    prefix: str = ""
    "Raw decoder prefix, see `AsrOptions`."
    beam_size: int | None = None
    temperature: float | None = None
    "Temperature of the recogniser; None: its own choice."
    padding: AsrPadding | None = None
    "Filling of the rest of the recogniser's window; None: its own choice."
    no_speech_threshold: float | None = None
    "See `AsrOptions`; None: the configured no-speech filter."
    logprobs: bool = False
    "True if transcripts include log probabilities of tokens, from recognisers that have them."
    turn_detection: TurnDetection | None = field(default_factory=TurnDetection)
    "None: push to talk. The client commits and asks for responses itself."
    barge_in: BargeInPolicy = "on"
    echo: EchoMode = "off"
    "Handling of the answer's echo in the microphone."
    noise_reduction: NoiseMode = "off"
    "Noise reduction for the microphone, after the echo is handled."
    area: str = ""
    "Room in which the client stands, as it says; empty: it does not say, or its door knows."
    wake_word: str = ""
    "Wake word before which nothing is recognised; empty: none. No effect in push to talk."
    answer_temperature: float | None = None
    "Temperature of the language model, 0 to 2; None: its own choice."
    max_output_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    "False: one tool call at a time, from language models that have this option."
    reasoning_effort: ReasoningEffort | None = None
    "Effort of language models that reason; None: their own choice."
    tools: tuple[str, ...] | None = None
    "Names of the server's tools that the assistant may use; None: all."
    client_tools: tuple[ToolSpec, ...] = ()
    "Tools that the client runs: their calls go to the client and end the response."
    mcp_servers: tuple[ClientMcpServer, ...] = ()
    "MCP servers that the client named. The server connects to them and calls their tools."
    tool_choice: ToolChoice = "auto"
    truncation: ContextTruncation = AS_FITS
    voice: str = DEFAULT
    speed: float = 1.0
    prompts: PromptLibrary = NO_PROMPTS
    "Stored prompts that the client may name in place of instructions."

    @property
    def interruption(self) -> InterruptingSpeech | None:
        """Speech that stops an answer; None: no speech does."""
        detection = self.turn_detection
        if detection is None or not detection.interrupt_response or self.barge_in == "off":
            return None
        return self.barge_in

    @property
    def may_interrupt(self) -> bool:
        """True if speech can stop an answer."""
        return self.interruption is not None

    def recognition(self, info: AsrInfo, expected: Sequence[str] = ()) -> AsrOptions:
        """Returns the options for this recogniser. `expected`: names besides the keywords, for a
        recogniser that they help."""
        also = expected if info.has_prompt_training and "hotwords" in info.supports else ()
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


InitialSettings: TypeAlias = Callable[[], SessionSettings]
"""Returns the settings with which a session begins. They may change while the server runs, so they
are asked for at the start of each session."""


class CurrentSettings:
    """The settings in force in one session. Each part calls it at the moment it needs them."""

    def __init__(self, settings: SessionSettings) -> None:
        self._settings = settings

    def __call__(self) -> SessionSettings:
        """Returns the settings that are in force now."""
        return self._settings

    def replace(self, settings: SessionSettings) -> None:
        """Puts `settings` in force."""
        self._settings = settings


@dataclass(frozen=True, slots=True)
class ConversationProfile:
    """Settings that a conversation remembers: those of the client that set them last."""

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
        """Returns the profile of these settings."""
        return cls(**{field.name: getattr(settings, field.name) for field in fields(cls)})

    def apply_to(self, settings: SessionSettings) -> SessionSettings:
        """Returns the settings with those of the profile in place of their own."""
        return replace(
            settings, **{field.name: getattr(self, field.name) for field in fields(self)}
        )


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """Options of one `response.create`. They differ from the session for this response only; None:
    as the session."""

    modality: Modality | None = None
    instructions: str | None = None
    voice: str | None = None
    text_language: str | None = None
    "Language of an announcement, in ISO 639-1; None: that of the conversation."
    client_tools: tuple[ToolSpec, ...] | None = None
    mcp_servers: tuple[ClientMcpServer, ...] | None = None
    approved: "tuple[ApprovalDecision, ...]" = ()
    "Calls that were waiting for the client's approval; they run first."
    tool_choice: ToolChoice | None = None
    max_output_tokens: int | Literal["inf"] | None = None
    temperature: float | None = None
    "Temperature of the language model, 0 to 2."
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    audio_format: FormatName | None = None
    "Format in which the sound is sent, where it is sent as events."
    metadata: Mapping[str, str] | None = None
    "The client's own notes, repeated in the events of the response."
    in_conversation: bool = True
    "False: out of band; the response is not part of the conversation."
    input: tuple[Item | ItemReference, ...] | None = None
    "Items that the model sees in place of the conversation."
    top_p: float | None = None
    "See `LlmOptions`, as the two below; None: the engine's own choice."
    repetition_penalty: float | None = None
    default_temperature: float | None = None
    answer_format: AnswerFormat | None = None
    "Form of the answer's text. None: free text."
    is_spoken_by_caller: bool = False
    """True if the caller speaks the text itself, with any voice. Then the server chooses none, and
    its prompt for spoken answers is used though the response is text."""
