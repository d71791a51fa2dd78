"""What a session tells its client, whatever the transport. A closed union, read with `match`.

Order within a turn (docs/realtime.md): SpeechStarted, HypothesisChanged*, SpeechStopped,
InputCommitted, ItemAdded, ItemDone, Transcribed | TranscriptionFailed, ResponseCreated,
OutputItemAdded, (OutputText | OutputAudio | CallArguments)*, OutputItemDone, ResponseDone, and
RateLimits where the language model's server told them. Without turn detection nobody is told when
speech starts and stops. Responses in the conversation never overlap, those out of band may; the
next utterance may begin at any point. Playout events come when sound really starts and stops,
TurnTraced when it is over for the user, or when a turn ends without.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from core.audio import Pcm
from core.items import Item

# What a service that a session depends on still lets it do. Part of `core.events`.


@dataclass(frozen=True, slots=True)
class RateLimit:
    name: str
    "What is counted: `requests` or `tokens`."
    limit: int
    remaining: int
    reset_s: float
    "Until all of the limit is there again."


@dataclass(frozen=True, slots=True)
class RateLimits:
    """As the language model's server told them with its last answer; at least one."""

    limits: tuple[RateLimit, ...]

    def after(self, elapsed_s: float) -> "RateLimits":
        """The same, told so much later."""
        aged = (replace(one, reset_s=max(0.0, one.reset_s - elapsed_s)) for one in self.limits)
        return RateLimits(tuple(aged))


# What a session tells of the MCP servers that its client named. Part of `core.events`.

McpProgress = Literal["in_progress", "completed", "failed"]


@dataclass(frozen=True, slots=True)
class McpListToolsProgress:
    """Of a server's tools."""

    item_id: str
    stage: McpProgress


@dataclass(frozen=True, slots=True)
class McpCallArgumentsDelta:
    """More of the arguments of a call; together they are the item's."""

    response_id: str
    item_id: str
    output_index: int
    delta: str


@dataclass(frozen=True, slots=True)
class McpCallProgress:
    """Between OutputItemAdded and OutputItemDone. In progress: its arguments are whole."""

    response_id: str
    item_id: str
    output_index: int
    stage: McpProgress
    arguments: str


Modality = Literal["text", "audio"]
FormatName = Literal["audio/pcm", "audio/pcm;rate=16000", "audio/pcmu", "audio/pcma"]
"How a client is sent sound: s16le at 24 kHz, or G.711 mu-law or A-law at 8 kHz."
ResponseStatus = Literal["in_progress", "completed", "cancelled", "failed", "incomplete"]
CancelReason = Literal["turn_detected", "client_cancelled"]
ResponseEndReason = CancelReason | Literal["max_output_tokens"]


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    item_id: str
    "The user item that this utterance becomes."
    audio_start_ms: int
    "Prefix padding included; from the first sample of the session."


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    item_id: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class SpeechDiscarded:
    """What began as speech came to nothing before it was committed (input cleared)."""

    item_id: str


@dataclass(frozen=True, slots=True)
class InputCommitted:
    item_id: str
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class TimeoutTriggered:
    """The user said nothing for so long that the assistant goes on."""

    item_id: str
    "The empty item that stands for the silence."
    audio_start_ms: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class InputCleared:
    pass


@dataclass(frozen=True, slots=True)
class ItemAdded:
    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ItemDone:
    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ItemTruncated:
    item_id: str
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class ItemDeleted:
    item_id: str


@dataclass(frozen=True, slots=True)
class ItemRetrieved:
    """A client asked what it is now."""

    item: Item


@dataclass(frozen=True, slots=True)
class HypothesisChanged:
    """Words while they are spoken. `stable` only grows; `unstable` may change."""

    item_id: str
    stable: str
    unstable: str
    audio_ms: int
    "Length of the audio that this hypothesis covers."


@dataclass(frozen=True, slots=True)
class TranscriptionCompleted:
    item_id: str
    transcript: str
    "Empty when it was noise."
    audio_s: float
    language: str
    logprobs: tuple[tuple[bytes, float], ...] | None = None
    "The tokens' texts and log probabilities, when asked for and known."
    content_index: int = 0
    "Which part of the item."


@dataclass(frozen=True, slots=True)
class TranscriptionFailed:
    item_id: str
    code: str
    message: str
    content_index: int = 0


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """True counts; 0 where an engine counts nothing."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    "Of the input, those that the server had from an earlier request."


@dataclass(frozen=True, slots=True)
class ResponseParameters:
    """What was asked of one response, as its events repeat it."""

    in_conversation: bool = True
    "False: out of band; its items are not added to the conversation."
    metadata: Mapping[str, str] | None = None
    max_output_tokens: int | None = None
    voice: str | None = None
    "None: the session's."
    audio_format: FormatName | None = None
    "None: the session's."


DEFAULT_RESPONSE_PARAMETERS = ResponseParameters()


@dataclass(frozen=True, slots=True)
class ResponseCreated:
    response_id: str
    modality: Modality
    terms: ResponseParameters = DEFAULT_RESPONSE_PARAMETERS


@dataclass(frozen=True, slots=True)
class OutputItemAdded:
    response_id: str
    output_index: int
    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class OutputTextDelta:
    """Text of the answer; with `modality` audio it is the transcript of what is spoken."""

    response_id: str
    item_id: str
    output_index: int
    modality: Modality
    delta: str


@dataclass(frozen=True, slots=True)
class OutputAudioDelta:
    """Sound of the answer, 24 kHz. Only for clients that pace playout themselves."""

    response_id: str
    item_id: str
    output_index: int
    pcm: Pcm


@dataclass(frozen=True, slots=True)
class FunctionCallArgumentsDelta:
    """More of the arguments of a call of the client's tool; together they are the item's."""

    response_id: str
    item_id: str
    output_index: int
    call_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class OutputItemDone:
    response_id: str
    output_index: int
    item: Item
    "With the whole text, cut to what was heard when the answer was interrupted."
    previous_item_id: str | None
    has_audio: bool


@dataclass(frozen=True, slots=True)
class ResponseDone:
    response_id: str
    status: ResponseStatus
    modality: Modality
    output: tuple[Item, ...] = ()
    reason: ResponseEndReason | None = None
    error_code: str | None = None
    error_message: str | None = None
    usage: TokenUsage = field(default_factory=TokenUsage)
    terms: ResponseParameters = DEFAULT_RESPONSE_PARAMETERS


@dataclass(frozen=True, slots=True)
class PlayoutStarted:
    response_id: str


@dataclass(frozen=True, slots=True)
class PlayoutStopped:
    response_id: str


@dataclass(frozen=True, slots=True)
class PlayoutCleared:
    response_id: str


@dataclass(frozen=True, slots=True)
class StageSpan:
    """One stage of a turn; 0 ms is the end of the user's speech (or the text's arrival)."""

    stage: Literal["endpoint_wait", "asr", "llm", "tts", "playout"]
    start_ms: float
    end_ms: float
    is_speculative: bool = False
    "It began before the turn was over."


@dataclass(frozen=True, slots=True)
class TruncationPoint:
    """What a listener knows of an answer whose sound was cut."""

    words: int
    by: Literal["word_times", "proportion"]
    """How they were counted where it was cut: by the voice's own times, or by the clause's share of
    sound."""


@dataclass(frozen=True, slots=True)
class TurnTimeline:
    """Where the milliseconds of a turn went; once per turn, when it is no longer heard."""

    turn_id: str
    item_id: str | None
    response_id: str | None
    status: Literal["answered", "rejected", "cancelled", "failed", "transcribed"]
    stages: tuple[StageSpan, ...]
    response_latency_ms: float | None
    "End of speech to first sound (or first text): the number we sell."
    marks: Mapping[str, float] = field(default_factory=dict[str, float])
    "Moment (`pipeline.shared.turn.TurnMark`) -> ms from the end of speech."
    cut: TruncationPoint | None = None
    "None: the answer was heard to its end, or is not spoken."


@dataclass(frozen=True, slots=True)
class WakeStateChanged:
    """A session with a wake word began or ceased to listen; or it was given another, or none."""

    word: str
    "Empty: it waits for none, and listens."
    phrase: str
    "The word as it is said."
    is_awake: bool


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """Something went wrong outside a response; the session goes on."""

    code: str
    message: str
    is_clients: bool = False
    "The client asked for what cannot be: the fault is not ours."


SessionEvent = (
    SpeechStarted
    | SpeechStopped
    | SpeechDiscarded
    | InputCommitted
    | TimeoutTriggered
    | InputCleared
    | ItemAdded
    | ItemDone
    | ItemTruncated
    | ItemDeleted
    | ItemRetrieved
    | HypothesisChanged
    | TranscriptionCompleted
    | TranscriptionFailed
    | ResponseCreated
    | OutputItemAdded
    | OutputTextDelta
    | OutputAudioDelta
    | FunctionCallArgumentsDelta
    | McpListToolsProgress
    | McpCallArgumentsDelta
    | McpCallProgress
    | OutputItemDone
    | ResponseDone
    | RateLimits
    | PlayoutStarted
    | PlayoutStopped
    | PlayoutCleared
    | TurnTimeline
    | WakeStateChanged
    | ErrorEvent
)
