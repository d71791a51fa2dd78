"""Events of a session for its client, on any transport. A closed union, read with `match`.

Order within a turn (docs/realtime.md): SpeechStarted, HypothesisChanged*, SpeechStopped,
InputCommitted, ItemAdded, ItemDone, TranscriptionCompleted | TranscriptionFailed, ResponseCreated,
OutputItemAdded, (OutputTextDelta | OutputAudioDelta | FunctionCallArgumentsDelta)*, OutputItemDone,
ResponseDone, and RateLimits where the language model's server reported them.

Without turn detection there is no SpeechStarted and no SpeechStopped. Responses in the conversation
never overlap; out-of-band responses may. The next utterance may begin at any point. Playout events
come when sound really starts and stops. TurnTimeline comes when the sound of the turn has ended, or
when a turn ends without sound.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from core.audio import Pcm
from core.conversation.items import Item
from core.conversation.speakers import SpeakerMatch
from core.conversation.usage import RateLimits, TokenUsage

# Progress of the MCP servers that the client named.

McpProgress = Literal["in_progress", "completed", "failed"]


@dataclass(frozen=True, slots=True)
class McpListToolsProgress:
    """Progress of reading the list of a server's tools."""

    item_id: str
    stage: McpProgress


@dataclass(frozen=True, slots=True)
class McpCallArgumentsDelta:
    """More of the arguments of an MCP call. All deltas together are the item's arguments."""

    response_id: str
    item_id: str
    output_index: int
    delta: str


@dataclass(frozen=True, slots=True)
class McpCallProgress:
    """Progress of an MCP call, between OutputItemAdded and OutputItemDone. From `in_progress` on,
    its arguments are complete."""

    response_id: str
    item_id: str
    output_index: int
    stage: McpProgress
    arguments: str


Modality = Literal["text", "audio"]
FormatName = Literal["audio/pcm", "audio/pcm;rate=16000", "audio/pcmu", "audio/pcma"]
"Format of sound for a client: s16le at 24 or 16 kHz, or G.711 mu-law or A-law at 8 kHz."
ResponseStatus = Literal["in_progress", "completed", "cancelled", "failed", "incomplete"]
CancelReason = Literal["turn_detected", "client_cancelled"]
ResponseEndReason = CancelReason | Literal["max_output_tokens"]


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The user began to speak. Only with turn detection."""

    item_id: str
    "Id of the item that this utterance becomes."
    audio_start_ms: int
    "Start of the speech, including prefix padding; ms from the first sample of the session."


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The user stopped speaking. Only with turn detection."""

    item_id: str
    audio_end_ms: int
    "End of the speech; ms from the first sample of the session."


@dataclass(frozen=True, slots=True)
class SpeechDiscarded:
    """Speech that had begun was dropped before it was committed, because the input was cleared."""

    item_id: str


@dataclass(frozen=True, slots=True)
class InputCommitted:
    """An utterance is over and becomes an item of the conversation."""

    item_id: str
    previous_item_id: str | None
    "Item that it follows; None: it is the first."


@dataclass(frozen=True, slots=True)
class TimeoutTriggered:
    """The user was silent for the idle timeout, so the assistant speaks again by itself."""

    item_id: str
    "Id of the empty item that stands for the silence."
    audio_start_ms: int
    audio_end_ms: int


@dataclass(frozen=True, slots=True)
class InputCleared:
    """Audio that was not committed was dropped, because the client asked for it."""


@dataclass(frozen=True, slots=True)
class ItemAdded:
    """An item was added to the conversation."""

    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ItemDone:
    """An added item is complete."""

    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class ItemTruncated:
    """An assistant's message was cut to what the user heard."""

    item_id: str
    audio_end_ms: int
    "Length of its sound that was heard, in ms."


@dataclass(frozen=True, slots=True)
class ItemDeleted:
    """An item was deleted at the client's request."""

    item_id: str


@dataclass(frozen=True, slots=True)
class ItemRetrieved:
    """Answers a client that asked for an item as it is now."""

    item: Item


@dataclass(frozen=True, slots=True)
class HypothesisChanged:
    """Partial transcript. `stable` only grows; `unstable` may change."""

    item_id: str
    stable: str
    unstable: str
    audio_ms: int
    "Length of the audio that this hypothesis covers."


@dataclass(frozen=True, slots=True)
class TranscriptionCompleted:
    """Final transcript of an item."""

    item_id: str
    transcript: str
    "Text; empty when the audio was noise."
    audio_s: float
    "Length of the audio in seconds."
    language: str
    logprobs: tuple[tuple[bytes, float], ...] | None = None
    "Text and log probability of each token, when asked for and known."
    content_index: int = 0
    "Index of the item's part."
    rejected_words: int = 0
    "Number of decoded words that were rejected as noise, and so are not in the transcript."


@dataclass(frozen=True, slots=True)
class SpeakerRecognised:
    """The voice of an item was compared with the voices that the server knows. The event is sent
    only if the server knows a voice. It comes when the comparison is done: usually before the
    transcript."""

    item_id: str
    speaker: SpeakerMatch | None
    "None: a guest."


@dataclass(frozen=True, slots=True)
class TranscriptionFailed:
    """The audio of an item could not be transcribed."""

    item_id: str
    code: str
    message: str
    content_index: int = 0


@dataclass(frozen=True, slots=True)
class ResponseParameters:
    """Parameters of one response, as its events repeat them."""

    in_conversation: bool = True
    "False: out of band; its items are not added to the conversation."
    metadata: Mapping[str, str] | None = None
    max_output_tokens: int | None = None
    voice: str | None = None
    "None: the session's voice."
    audio_format: FormatName | None = None
    "None: the session's format."


DEFAULT_RESPONSE_PARAMETERS = ResponseParameters()


@dataclass(frozen=True, slots=True)
class ResponseCreated:
    """A response begins."""

    response_id: str
    modality: Modality
    parameters: ResponseParameters = DEFAULT_RESPONSE_PARAMETERS


@dataclass(frozen=True, slots=True)
class OutputItemAdded:
    """An item of a response begins."""

    response_id: str
    output_index: int
    item: Item
    previous_item_id: str | None


@dataclass(frozen=True, slots=True)
class OutputTextDelta:
    """More text of the answer. With `modality` audio, it is the transcript of what is spoken."""

    response_id: str
    item_id: str
    output_index: int
    modality: Modality
    delta: str


@dataclass(frozen=True, slots=True)
class OutputAudioDelta:
    """More sound of the answer, 24 kHz. Only for clients that pace playout themselves."""

    response_id: str
    item_id: str
    output_index: int
    pcm: Pcm


@dataclass(frozen=True, slots=True)
class FunctionCallArgumentsDelta:
    """More of the arguments of a call of the client's tool. All deltas together are the item's
    arguments."""

    response_id: str
    item_id: str
    output_index: int
    call_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class OutputItemDone:
    """An item of a response is complete."""

    response_id: str
    output_index: int
    item: Item
    "The item with its whole text, or cut to what was heard when the answer was interrupted."
    previous_item_id: str | None
    has_audio: bool


@dataclass(frozen=True, slots=True)
class ResponseDone:
    """A response is over. `output`: all of its items. `reason`: why it ended early."""

    response_id: str
    status: ResponseStatus
    modality: Modality
    output: tuple[Item, ...] = ()
    reason: ResponseEndReason | None = None
    error_code: str | None = None
    error_message: str | None = None
    usage: TokenUsage = field(default_factory=TokenUsage)
    parameters: ResponseParameters = DEFAULT_RESPONSE_PARAMETERS


@dataclass(frozen=True, slots=True)
class PlayoutStarted:
    """The sound of a response starts."""

    response_id: str


@dataclass(frozen=True, slots=True)
class PlayoutStopped:
    """The sound of a response has ended by itself."""

    response_id: str


@dataclass(frozen=True, slots=True)
class PlayoutCleared:
    """The sound of a response was cut off."""

    response_id: str


@dataclass(frozen=True, slots=True)
class StageSpan:
    """One stage of a turn. 0 ms is the end of the user's speech, or the arrival of written
    input."""

    stage: Literal["endpoint_wait", "asr", "llm", "tts", "playout"]
    start_ms: float
    end_ms: float
    is_speculative: bool = False
    "True if the stage began before the turn was over."


@dataclass(frozen=True, slots=True)
class TruncationPoint:
    """Part of an answer that the user heard before its sound was cut."""

    words: int
    "Number of words that were heard."
    by: Literal["word_times", "proportion"]
    """Method of the count in the clause that was cut: by the voice's own times, or by the share of
    the clause's sound."""


@dataclass(frozen=True, slots=True)
class TurnTimeline:
    """Latencies of one turn. Emitted once per turn, when its sound has ended."""

    turn_id: str
    item_id: str | None
    response_id: str | None
    status: Literal["answered", "rejected", "cancelled", "failed", "transcribed"]
    stages: tuple[StageSpan, ...]
    response_latency_ms: float | None
    """Milliseconds from the end of speech to the first sound, or to the first text of a written
    answer."""
    marks: Mapping[str, float] = field(default_factory=dict[str, float])
    "Mark (`pipeline.shared.turn.TurnMark`) -> ms from the end of speech."
    cut: TruncationPoint | None = None
    "Point at which the answer was cut. None: it was heard to its end, or is not spoken."
    speaker: SpeakerMatch | None = None
    """Person who spoke, recognised by the voice; None: a guest, written words, or the server knows
    no voice."""


@dataclass(frozen=True, slots=True)
class ServerToolItem:
    """The server called one of its own tools in a response, or the tool gave its result."""

    response_id: str
    item: Item
    "A FunctionCallItem or a FunctionOutputItem. Clients cannot name it."


@dataclass(frozen=True, slots=True)
class WakeStateChanged:
    """A session with a wake word woke or fell asleep, or its wake word changed."""

    word: str
    "Name of the wake word. Empty: there is none, and the session always listens."
    phrase: str
    "The word as it is spoken."
    is_awake: bool


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """Something failed outside a response; the session goes on."""

    code: str
    message: str
    is_clients: bool = False
    "True if the client caused it by a request that cannot be fulfilled."


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
    | SpeakerRecognised
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
    | ServerToolItem
    | WakeStateChanged
    | ErrorEvent
)
