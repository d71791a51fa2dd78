"""What an engine is: Protocols and the values that cross them. Implementations do not inherit.

Each engine is one module `engines/<kind>/<name>.py` with `Settings` (a frozen msgspec struct that
forbids unknown fields) and `create(settings)`. Heavy libraries are imported inside `create`.
`pipeline/transcription/stream` turns the batched `AsrModel` into a stream, for every door alike.
What waits for wake words is in `engines/base/wake.py`.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from core.audio import AudioFrame, Pcm
from core.events import RateLimits, TokenUsage
from core.items import ImagePart
from core.ports import ToolSpec


class Vad(Protocol):
    """Voice activity of one stream; stateful, one object per session, cheap."""

    frame_samples: int
    "Samples per call at 16 kHz."

    def push(self, pcm: Pcm) -> float:
        """Probability in [0, 1] that this frame of exactly `frame_samples` holds speech."""
        ...

    def reset(self) -> None:
        """Forget everything heard."""
        ...


class VadEngine(Protocol):
    """Makes a `Vad` for each session; the weights, if any, are shared, the state never."""

    name: str

    def open(self) -> Vad: ...


class EndOfTurnDetector(Protocol):
    """Tells a finished sentence from a pause for thought, by how it sounds."""

    name: str

    def probability(self, pcm: Pcm) -> float | None:
        """0 to 1 that whoever said this is done; None: it cannot tell. `pcm`: the utterance so far,
        16 kHz, its last silence included. Blocking (some 10 ms): it is called in a thread."""
        ...


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    start_ms: float
    "From the item's first sample."
    end_ms: float
    confidence: float
    "0 to 1."


AsrPadding = Literal["max", "bucket", "longest", "nopad"]
"""How much of its window an utterance fills (Whisper). The encoder's cost grows with it.

max      always 30 s, as the official weights were trained
bucket   10, 20 or 30 s: several times cheaper, usually as good; the operator's choice
longest  as long as the utterance, at least 10 s
nopad    as long as the utterance, at least 2 s; weights not trained on short windows get longest
"""

AsrTask = Literal["transcribe", "translate"]
TimestampLevel = Literal["none", "segment", "word"]


@dataclass(frozen=True, slots=True)
class AsrOptions:
    """How one item is decoded. Hashable: equal ones may share a batch. None and () leave the choice
    to the engine's settings. What an engine cannot do is not in its `AsrInfo.supports`."""

    language: str | None = None
    "ISO 639-1; None: detected, among `languages` if that says something."
    languages: tuple[str, ...] = ()
    task: AsrTask = "transcribe"
    "translate: into English."
    prompt: str = ""
    "Text that comes before: its words and spelling become likelier."
    hotwords: str = ""
    "Names and terms to expect."
    prefix: str = ""
    """Raw decoder prefix with its special tokens, in place of language, task, prompt and hotwords:
    `<|startofprev|>words<|startoftranscript|><|zh|><|en|><|transcribe|><|notimestamps|>`."""
    beam_size: int | None = None
    temperatures: tuple[float, ...] = ()
    "0 is greedy or beam search; each further one is tried when the one before fails its checks."
    timestamps: TimestampLevel = "none"
    padding: AsrPadding | None = None
    no_speech_threshold: float | None = None
    "Probability of no speech above which unsure words are rejected; at 1 nothing is rejected."
    token_logprobs: bool = False


@dataclass(frozen=True, slots=True)
class AsrItem:
    """One utterance so far. Items are self-contained, so that a restarted worker can take over."""

    utterance: str
    "Engines cache what they computed under it; without it the answer is equal."
    pcm: Pcm
    "All samples of the utterance so far, 16 kHz; at most `AsrInfo.window_ms`."
    is_final: bool
    "The utterance is over; the cached state may be dropped."
    options: AsrOptions = AsrOptions()


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech with its scores, as OpenAI's verbose_json names them."""

    text: str
    start_ms: float
    "From the item's first sample."
    end_ms: float
    tokens: tuple[int, ...] = ()
    temperature: float = 0.0
    avg_logprob: float = 0.0
    compression_ratio: float = 1.0
    no_speech_prob: float = 0.0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    data: bytes
    "The token's text; a part of a character where tokens cut one."
    logprob: float


@dataclass(frozen=True, slots=True)
class AsrResult:
    text: str
    "Empty when nothing was said, or when it is rejected."
    confidence: float
    "0 to 1, of the whole utterance."
    language: str
    words: tuple[Word, ...] = ()
    "With timestamps `word`, where the engine has them."
    is_rejected: bool = False
    "Something was decoded, but its score says that it was not speech (noise, music)."
    segments: tuple[Segment, ...] = ()
    "At least one where there is text."
    tokens: tuple[TokenLogprob, ...] = ()
    "With `token_logprobs`."
    language_probability: float = 1.0
    "1 when the caller named the language."
    is_unsure: bool = False
    """One of its scores says that nobody spoke, but not all of them: not enough to reject the text.
    Means something where `AsrInfo.tells_noise`."""


@dataclass(frozen=True, slots=True)
class AsrInfo:
    name: str
    model: str
    languages: tuple[str, ...]
    max_batch: int
    "Items that one `decode` call takes."
    is_incremental: bool
    "Decoding a longer prefix of the same utterance costs only the new samples."
    window_ms: float | None = None
    "Longest audio of one item; None: any. Longer recordings are cut by `pipeline/`."
    supports: tuple[str, ...] = ()
    "Fields of `AsrOptions` that it honours beside `language`."
    paddings: tuple[AsrPadding, ...] = ()
    "Those it honours where `padding` is supported; another one is done as `longest`."
    expects_names: bool = False
    "Hotwords help it even when they are not said: its training had prompts."
    tells_noise: bool = False
    "Its own scores tell noise from speech, so they decide; of others the VAD decides."
    takes_all: bool = False
    "Its settings say that nothing is rejected (`no_speech_threshold` 1)."


def fallback_padding(info: AsrInfo, wanted: AsrPadding | None) -> AsrPadding | None:
    """What is done in place of a padding that these weights were not trained for; None: nothing."""
    is_done = wanted is None or not info.paddings or wanted in info.paddings
    return None if is_done else "longest"


class AsrModel(Protocol):
    """Speech to text in batches. Blocking: it lives in a worker process."""

    info: AsrInfo

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]: ...

    def forget(self, utterance: str) -> None:
        """The utterance was cancelled: drop what is cached for it."""
        ...

    def close(self) -> None: ...


MessageRole = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model wants a tool run. Also remembered in the assistant message that asked for it."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a call's arguments while the model writes it, from engines that tell; the whole
    `ToolCall` follows under the same id."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    role: MessageRole
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    "Assistant only."
    call_id: str = ""
    "Tool only: which call this answers; `text` is then the result as JSON."
    images: tuple[ImagePart, ...] = ()
    "User only, behind the text; for engines that see."


@dataclass(frozen=True, slots=True)
class LlmOptions:
    """How one answer is generated. None leaves the choice to the engine's settings."""

    temperature: float | None = None
    "0 to 2."
    max_output_tokens: int | None = None
    must_call: bool = False
    "Call a tool instead of talking, where the engine can be told so."
    top_p: float | None = None
    "Above 0, to 1: only the likeliest tokens that are together as likely as this."
    repetition_penalty: float | None = None
    """By what a token is made less likely once it is in the prompt or the answer: 1 by nothing;
    left out where the engine's server is not known to have it."""
    usual_temperature: float | None = None
    "Where neither `temperature` nor the engine's settings say one."
    parallel_tool_calls: bool | None = None
    "False: one tool call at a time, from servers that can be told so."
    reasoning_effort: str | None = None
    "In the words of the engine's server (`low`, `high`); for models that think."

    def temperature_beside(self, configured: float | None) -> float | None:
        """Which one counts, given that of the engine's settings."""
        chosen = (self.temperature, configured, self.usual_temperature)
        return next((one for one in chosen if one is not None), None)


AS_CONFIGURED = LlmOptions()


class Llm(Protocol):
    """A language model. Closing the generator cancels the request upstream."""

    name: str
    languages: tuple[str, ...]
    "ISO 639-1 codes of what it understands; () for any."
    context_tokens: int | None
    "Prompt and answer together; None: no limit that callers need to know."

    def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits, None]:
        """Stream the answer to `messages`; `TokenUsage` at its end, from those that count;
        `RateLimits`
        from those that are told of any. After tool calls the caller appends their results and asks
        again. `language` is what the session speaks (ISO 639-1). Raises EngineError
        (ContextExceeded for a prompt that is too long); Overloaded; RequestError for what it cannot
        take."""
        ...


@runtime_checkable
class VisionLlm(Protocol):
    """A language model that may be given images."""

    @property
    def sees(self) -> bool: ...


@runtime_checkable
class ToolFilterLlm(Protocol):
    """A language model that needs every tool of the home itself, and tells a model behind it of
    fewer."""

    def declared(self, tools: Sequence[ToolSpec], *, language: str) -> Sequence[ToolSpec]:
        """What of the tools is part of a request; the others cost no context."""
        ...


@runtime_checkable
class ConcurrencyLimitedLlm(Protocol):
    """A language model that knows how many answers it writes at once, and refuses further ones."""

    @property
    def at_once(self) -> int | None:
        """None: it does not know."""
        ...


@dataclass(frozen=True, slots=True)
class WordMark:
    """When a word of the text sounds."""

    chunk: int
    "Which of the texts given to `speak`, from 0."
    end_char: int
    "One past its last character in that text."
    start_ms: float
    "From the first sample that this `speak` made."
    end_ms: float


@dataclass(frozen=True, slots=True)
class TtsInfo:
    name: str
    rate_hz: int
    "Rate of the frames that `speak` yields."
    voices: Mapping[str, tuple[str, ...]]
    "Language (ISO 639-1) -> voice names; the first is its default."
    has_word_times: bool = False
    "It calls `on_word` for every word."


class Tts(Protocol):
    """Text to speech, streaming."""

    info: TtsInfo

    def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """Speak each chunk of text as it comes. Frames of any length, `start` continuous from 0;
        the first one as early as possible. Closing the generator stops synthesis at once. `on_word`
        is told each word before the frame in which it ends. Raises EngineError, RequestError."""
        ...
