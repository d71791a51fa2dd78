"""Protocols of the engines (models), and the values that are passed to and from them.

An implementation fits a Protocol by its members; it does not inherit from it. Each engine is one
module `engines/<kind>/<name>.py` with `Settings` (a frozen msgspec struct that forbids unknown
fields) and `create(settings)`. Heavy libraries are imported inside `create`.

`AsrModel` works on batches; `pipeline/transcription/stream.py` makes streams of it.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from core.audio import Pcm
from core.conversation.items import ImagePart
from core.conversation.usage import RateLimits, TokenUsage
from core.ports import ToolSpec
from engines.base.decode_steps import DecodeSteps
from engines.base.voice import Gender as Gender
from engines.base.voice import Tts as Tts
from engines.base.voice import TtsInfo as TtsInfo
from engines.base.voice import WordMark as WordMark


class Vad(Protocol):
    """Voice activity detector of one audio stream. It has state; each session has its own."""

    frame_samples: int
    "Number of samples that each call of `push` takes, at 16 kHz."

    def push(self, pcm: Pcm) -> float:
        """Returns the probability, 0 to 1, that the frame holds speech. `pcm`: int16, shape
        (frame_samples,), 16 kHz, mono."""
        ...

    def reset(self) -> None:
        """Forgets all audio that it has received."""
        ...


class VadEngine(Protocol):
    """Creates a `Vad` for each session. The sessions share the weights, if there are any, but no
    state."""

    name: str
    "Name of the engine, as in the configuration."

    def open(self) -> Vad:
        """Returns a new detector for one session."""
        ...


class EndOfTurnDetector(Protocol):
    """Distinguishes a finished sentence from a pause for thought by the sound of the voice."""

    name: str
    "Name of the engine, as in the configuration."

    def probability(self, pcm: Pcm) -> float | None:
        """Returns the probability, 0 to 1, that the speaker has finished; None if it cannot tell.

        `pcm`: the utterance so far with the silence at its end, int16, 16 kHz, mono. Blocks for
        some 10 ms, so it is called in a thread.
        """
        ...


@dataclass(frozen=True, slots=True)
class Word:
    """One recognised word with its times."""

    text: str
    start_ms: float
    "Milliseconds from the item's first sample."
    end_ms: float
    "Milliseconds from the item's first sample."
    confidence: float
    "Confidence of the engine, 0 to 1."


AsrPadding = Literal["max", "bucket", "longest", "nopad"]
"""Part of Whisper's window of 30 s that is computed for an utterance. The encoder's cost grows with
it.

  max      always 30 s, as the official weights were trained
  bucket   10, 20 or 30 s: several times cheaper. Doubtful text is never decoded again in 30 s, so
           weights that were not trained on short windows may repeat or lose words: prefer longest
  longest  as long as the utterance, at least 10 s. With weights that were not trained on short
           windows, doubtful text is decoded again in 30 s
  nopad    as long as the utterance, at least 2 s; weights not trained on short windows get longest
"""

AsrTask = Literal["transcribe", "translate"]
"Task of a recogniser: text in the spoken language, or translated into English."
TimestampLevel = Literal["none", "segment", "word"]
"Times that a result has: none, of its segments, or of its words too."


@dataclass(frozen=True, slots=True)
class AsrOptions:
    """Options for decoding one item.

    Hashable, because only items with equal options may share a batch. None and () leave the choice
    to the engine's settings. An engine ignores the fields that its `AsrInfo.supports` does not
    name.
    """

    language: str | None = None
    "ISO 639-1 code. None: the language is detected, among `languages` if that is not empty."
    languages: tuple[str, ...] = ()
    "ISO 639-1 codes from which the detection chooses."
    task: AsrTask = "transcribe"
    "`translate` returns English text for every spoken language."
    prompt: str = ""
    "Text that is taken to precede the audio: its words and its spelling become more likely."
    hotwords: str = ""
    "Names and terms to expect, as text."
    former_words: str = ""
    "Words that the audio is known to begin with. The result has only what is spoken after them."
    prefix: str = ""
    """Raw decoder prefix with its special tokens. It replaces language, task, prompt and hotwords:
    `<|startofprev|>words<|startoftranscript|><|zh|><|en|><|transcribe|><|notimestamps|>`."""
    beam_size: int | None = None
    "Number of hypotheses that beam search keeps."
    temperatures: tuple[float, ...] = ()
    """Sampling temperatures, in the order in which they are tried. 0 is greedy or beam search. The
    next one is tried when the result of the one before fails its checks."""
    timestamps: TimestampLevel = "none"
    padding: AsrPadding | None = None
    "None: the engine's choice. See `AsrPadding`."
    no_speech_threshold: float | None = None
    """Probability of no speech, 0 to 1, above which unsure words are rejected. At 1 nothing is
    rejected."""
    token_logprobs: bool = False
    "True: the result has the log probability of each token."


@dataclass(frozen=True, slots=True)
class AsrItem:
    """The audio of one utterance so far. Each item holds all of it, so that a restarted worker can
    continue."""

    utterance: str
    """Id of the utterance. Engines cache what they computed under it. The result does not depend on
    it."""
    pcm: Pcm
    "All samples of the utterance so far, int16, 16 kHz, mono; at most `AsrInfo.window_ms`."
    is_final: bool
    "True: the utterance is over, and the cached state may be dropped."
    options: AsrOptions = AsrOptions()


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech with its scores, named as in OpenAI's verbose_json."""

    text: str
    start_ms: float
    "Milliseconds from the item's first sample."
    end_ms: float
    tokens: tuple[int, ...] = ()
    "Ids of the tokens of the text."
    temperature: float = 0.0
    "Temperature at which it was decoded."
    avg_logprob: float = 0.0
    "Mean log probability of its tokens."
    compression_ratio: float = 1.0
    """Length of the text divided by its compressed length. A high value means that the text repeats
    itself."""
    no_speech_prob: float = 0.0
    "Probability that there is no speech, 0 to 1."


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One token of the text with its log probability."""

    data: bytes
    "The token's text in UTF-8. It is part of a character where the tokens divide a character."
    logprob: float
    "Natural logarithm of the token's probability."


ShortWindowOutcome = Literal["accepted", "too_long", "repeated", "empty", "unsure", "no_speech"]
"""Outcome of the text of a window shorter than 30 s. Each value except `accepted` is the reason
why the window was decoded again in 30 s, if the item was final:

  too_long   more text than anybody speaks in that time
  repeated   the text repeats itself
  empty      no text, though there is sound
  unsure     the words are unsure, by their mean log probability
  no_speech  a high probability of no speech
"""


@dataclass(frozen=True, slots=True)
class AsrResult:
    """Result of recognising one item."""

    text: str
    "Empty if no speech was found, or if the text was rejected."
    confidence: float
    "Confidence in the whole utterance, 0 to 1."
    language: str
    "ISO 639-1 code of the recognised language."
    words: tuple[Word, ...] = ()
    'Words with their times, if `timestamps` is "word" and the engine supports it.'
    is_rejected: bool = False
    "True: text was decoded, but its scores indicate noise or music instead of speech."
    segments: tuple[Segment, ...] = ()
    "At least one segment if there is text."
    tokens: tuple[TokenLogprob, ...] = ()
    "Tokens of the text, if `token_logprobs` was asked for."
    language_probability: float = 1.0
    "Probability of `language`, 0 to 1. It is 1 when the caller named the language."
    is_unsure: bool = False
    """True: one of the scores indicates that there was no speech, but not all do. That is not
    enough to reject the text. Only meaningful if `AsrInfo.tells_noise` is true."""
    rejected_words: int = 0
    "Number of decoded words that are not in `text`, because they were rejected as noise."
    short_windows: tuple[ShortWindowOutcome, ...] = ()
    "Outcome of each window that was first decoded in less than 30 s, with `longest`."

    @property
    def is_doubtful_partial(self) -> bool:
        """True if a window was decoded in less than 30 s, and only a final decode would have
        decoded it again. Its text must not be used as the final result."""
        return any(outcome != "accepted" for outcome in self.short_windows)


@dataclass(frozen=True, slots=True)
class AsrInfo:
    """Properties of an ASR model that callers need to know."""

    name: str
    "Name of the engine."
    model: str
    "Name of the model that the engine has loaded."
    languages: tuple[str, ...]
    "ISO 639-1 codes of the languages that it recognises."
    max_batch: int
    "Largest number of items that one `decode` call takes."
    is_incremental: bool
    "True: decoding a longer prefix of the same utterance costs only the new samples."
    window_ms: float | None = None
    "Longest audio of one item, in ms; None: no limit. `pipeline/` cuts longer recordings."
    supports: tuple[str, ...] = ()
    "Names of the fields of `AsrOptions` that the model uses, besides `language`."
    paddings: tuple[AsrPadding, ...] = ()
    "Values of `padding` that the model can do, if it supports the field. Others become `longest`."
    has_prompt_training: bool = False
    "True: hotwords help the model even when they are not spoken, because its training had prompts."
    tells_noise: bool = False
    """True: the model's scores distinguish noise from speech, so they decide. Otherwise the VAD
    decides."""
    rejects_nothing: bool = False
    "True: the settings say that nothing is rejected (`no_speech_threshold` is 1)."
    lag_ms: float = 0.0
    """Length of the decoded audio's end whose words a partial may still lack. The final result has
    all words."""
    steps: DecodeSteps | None = None
    "Positions at which an incremental model decodes; None: it decodes all audio that it is given."


class AsrModel(Protocol):
    """Speech recognition in batches. Its calls block, so it runs in a worker process."""

    info: AsrInfo
    "Properties of the loaded model."

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Recognises the items, at most `info.max_batch`, and returns one result for each, in their
        order."""
        ...

    def forget(self, utterance: str) -> None:
        """Drops what is cached for a cancelled utterance."""
        ...

    def close(self) -> None:
        """Frees the model. No other method may be called after it."""
        ...


OnDecoded = Callable[[list[AsrResult] | Exception], None]
"""Callback that gets the results, one per item, or the error. It is called at most once, in a
thread of the engine."""


@runtime_checkable
class ConcurrentAsrModel(Protocol):
    """An `AsrModel` with its own thread. Its `decode` calls `begin` and waits for the result."""

    def begin(self, items: Sequence[AsrItem], done: OnDecoded) -> Callable[[], None]:
        """Starts to decode `items` while earlier calls may still be running, and returns at once.

        Returns a function that cancels the call: `done` is then not called, and the call's
        resources are free soon. The function does nothing when the call is over.
        """
        ...


MessageRole = Literal["system", "user", "assistant", "tool"]
'Author of a message; "tool" for the result of a tool call.'


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Request of the model to run a tool. It is also kept in the assistant message that contains
    it."""

    call_id: str
    "Id that the result refers to."
    name: str
    arguments: Mapping[str, object]
    "Arguments by name, as parsed from JSON."


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """Piece of a tool call's arguments while the model still writes them. Not every engine sends
    these. The complete `ToolCall` follows under the same id."""

    call_id: str
    name: str
    arguments: str
    "The next characters of the arguments' JSON text."


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the prompt."""

    role: MessageRole
    text: str = ""
    "Text of the message, or the result of a tool."
    tool_calls: tuple[ToolCall, ...] = ()
    "Calls that the model asked for; only in a message of the assistant."
    call_id: str = ""
    """Id of the call that this message answers; only for the role "tool". `text` is then the result
    as JSON."""
    images: tuple[ImagePart, ...] = ()
    "Images after the text; only in a user's message, and only for engines that accept images."
    speaker: str = ""
    """Name of the person who said a user's text, by the voice; empty: not known, or one person only
    uses the assistant."""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """Form that the text of an answer must have: JSON."""

    schema: Mapping[str, Any] | None = None
    "JSON Schema of the answer. None: any JSON object."
    name: str = "answer"
    "Name of the schema, which some servers demand."
    is_strict: bool | None = None
    """`strict` of OpenAI's API, which is passed on to servers. None: it is left out. An engine with
    a grammar holds every answer to the schema."""


@dataclass(frozen=True, slots=True)
class LlmOptions:
    """Options for generating one answer. None leaves the choice to the engine's settings."""

    temperature: float | None = None
    "Sampling temperature, 0 to 2."
    max_output_tokens: int | None = None
    "Most tokens of the answer."
    must_call: bool = False
    "True: the model must call a tool instead of answering with text, if the engine supports this."
    top_p: float | None = None
    """Nucleus sampling, above 0 and up to 1: the model chooses only from the most likely tokens
    whose probabilities add up to this value."""
    repetition_penalty: float | None = None
    """Factor that makes a token less likely once it is in the prompt or the answer; 1 changes
    nothing. It is left out of the request unless the engine's server is known to support it."""
    default_temperature: float | None = None
    "Temperature to use if neither `temperature` nor the engine's settings give one."
    parallel_tool_calls: bool | None = None
    "False: at most one tool call at a time, if the engine's server supports this."
    reasoning_effort: str | None = None
    "Effort level of a reasoning model, as the engine's server names it (`low`, `high`)."
    answer_format: AnswerFormat | None = None
    "Form of the answer's text. Only a `FormatLlm` may be given one. None: free text."

    def resolve_temperature(self, configured: float | None) -> float | None:
        """Returns the temperature to use. `configured`: the one in the engine's settings."""
        chosen = (self.temperature, configured, self.default_temperature)
        return next((value for value in chosen if value is not None), None)


AS_CONFIGURED = LlmOptions()
"Options that leave everything to the engine's settings."


class Llm(Protocol):
    """A language model. Closing the generator that `reply` returns cancels the request at the
    server."""

    name: str
    "Name of the engine, for logs and errors."
    languages: tuple[str, ...]
    "ISO 639-1 codes of the languages that the model understands; () for any."
    context_tokens: int | None
    """Size of the context window, prompt and answer together, in tokens. None: no limit that
    callers need to know."""

    def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits, None]:
        """Streams the answer to `messages`.

        `TokenUsage` comes at the end, from engines that count tokens. `RateLimits` comes from
        engines whose server reports them. After tool calls the caller appends their results to the
        messages and calls this again. `language`: ISO 639-1 code of the language that the session
        speaks.

        Raises EngineError (ContextLengthExceeded for a prompt that is too long), OverloadedError,
        and RequestError for messages or options that the model cannot accept.
        """
        ...


@runtime_checkable
class WarmableLlm(Protocol):
    """A language model whose first answer is slow unless it is prepared for it."""

    async def warm(self, language: str, tools: Sequence[ToolSpec]) -> None:
        """Prepares answers in this language (ISO 639-1; empty: any) with these tools, for example
        by loading the model. Raises EngineError when the model can never become available."""
        ...


@runtime_checkable
class LlmWithServer(Protocol):
    """A language model that starts and watches its own server."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keeps the server running while the context is open. Raises EngineError."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerProfile:
    """Environment, time limits and niceness of the worker process of a voice or a language model.
    If an engine's module has a function `worker_profile(settings)` that returns this, the engine
    runs in a worker process, not in the gateway."""

    environment: Mapping[str, str] = field(default_factory=dict)
    "Environment variables of the process, in addition to those that all workers have."
    load_timeout_s: float | None = None
    "Longest time for loading. None: as for other models."
    first_chunk_timeout_s: float = 60.0
    """Longest silence of the process before the first part of a result, in seconds; then it counts
    as hung. A long clause on a small machine takes tens of seconds."""
    chunk_timeout_s: float = 60.0
    "Longest silence of the process between two parts of a result, in seconds."
    nice: int = 0
    """Niceness of the process, 0 to 19. Where processors are short, a worker with 5 gets a third of
    the time of one with 0."""


@runtime_checkable
class LoadableEngine(Protocol):
    """An engine that reads its weights in `load`, in the worker process, instead of in `create`."""

    def load(self) -> None:
        """Reads the weights. Blocks for seconds to minutes. Raises EngineError, and whatever the
        model library raises."""
        ...


@runtime_checkable
class ClosableEngine(Protocol):
    """An engine that holds connections or a process."""

    async def aclose(self) -> None:
        """Closes the connections, or ends the process."""
        ...


@runtime_checkable
class VisionLlm(Protocol):
    """A language model that may accept images."""

    @property
    def accepts_images(self) -> bool:
        """True if the model accepts images."""
        ...


@runtime_checkable
class FormatLlm(Protocol):
    """A language model that may hold an answer to a form, by a grammar."""

    @property
    def holds_format(self) -> bool:
        """True if `LlmOptions.answer_format` may be used."""
        ...


@runtime_checkable
class CompletionServerLlm(Protocol):
    """A language model behind a server with OpenAI's completions API. The gateway can forward
    requests to it unchanged, with options that the gateway does not know."""

    def forward(
        self, path: str, body: Mapping[str, object], private_texts: Sequence[str]
    ) -> AsyncGenerator[str, None]:
        """Forwards a request, with the model's name replaced by the server's, and yields the
        answer.

        `path`: `/chat/completions` or `/completions`. With `stream` in the body, one text is the
        data of one event, the last one `[DONE]`; otherwise the whole JSON body is the only text.
        `private_texts`: texts of the request, which no error may repeat. Closing the generator
        aborts the request.

        Raises RequestError for a request that the server refuses, OverloadedError, EngineError.
        """
        ...


@runtime_checkable
class LayeredLlm(Protocol):
    """A language model behind sentence templates, which answer known commands without the model."""

    @property
    def raw_model(self) -> Llm:
        """The model without the templates."""
        ...


@runtime_checkable
class ToolFilterLlm(Protocol):
    """A language model that calls the tools of the home itself, so that its prompt needs to
    describe only some of the tools."""

    def filter_tools(self, tools: Sequence[ToolSpec], *, language: str) -> Sequence[ToolSpec]:
        """Returns the tools that the prompt describes. The others take no room in the context
        window. `language`: as for `Llm.reply`."""
        ...


@runtime_checkable
class ConcurrencyLimitedLlm(Protocol):
    """A language model that knows how many answers it can write at once. It refuses more than
    that."""

    @property
    def max_concurrency(self) -> int | None:
        """Number of answers that can be written at once; None if it is not known."""
        ...
