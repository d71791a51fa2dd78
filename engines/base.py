"""What an engine is: Protocols and the values that cross them. Implementations do not inherit.

Each engine is one module `engines/<kind>/<name>.py` with `Settings` (a frozen msgspec struct that
forbids unknown fields) and `create(settings)`. Heavy libraries are imported inside `create`.
`pipeline/transcription` turns the batched `AsrModel` into a stream, for every door alike.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from core.audio import AudioFrame, Pcm
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


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    start_ms: float
    "From the utterance's first sample."
    end_ms: float
    confidence: float
    "0 to 1."


@dataclass(frozen=True, slots=True)
class AsrItem:
    """One utterance so far. Items are self-contained, so that a restarted worker can take over."""

    utterance: str
    "Incremental engines cache decoder state under it; without it the answer is equal."
    pcm: Pcm
    "All samples of the utterance so far, 16 kHz."
    is_final: bool
    "The utterance is over; the cached state may be dropped."
    language: str | None = None
    "ISO 639-1; None lets the engine decide."
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class AsrResult:
    text: str
    "Empty when nothing was said, or when it is rejected."
    confidence: float
    "0 to 1, of the whole utterance."
    language: str
    words: tuple[Word, ...] = ()
    is_rejected: bool = False
    "Something was decoded, but its score says that it was not speech (noise, music)."


@dataclass(frozen=True, slots=True)
class AsrInfo:
    name: str
    model: str
    languages: tuple[str, ...]
    max_batch: int
    "Items that one `decode` call takes."
    is_incremental: bool
    "Decoding a longer prefix of the same utterance costs only the new samples."


class AsrModel(Protocol):
    """Speech to text in batches. Blocking: it lives in a worker process."""

    info: AsrInfo

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]: ...

    def forget(self, utterance: str) -> None:
        """The utterance was cancelled: drop what is cached for it."""
        ...

    def close(self) -> None: ...


Role = Literal["system", "user", "assistant", "tool"]


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
class Message:
    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    "Assistant only."
    call_id: str = ""
    "Tool only: which call this answers; `text` is then the result as JSON."


class Llm(Protocol):
    """A language model. Closing the generator cancels the request upstream."""

    name: str
    languages: tuple[str, ...]
    "ISO 639-1 codes of what it understands."

    def reply(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, language: str
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        """Stream the answer to `messages`. After tool calls the caller appends their results and
        asks again. `language` is what the session speaks (ISO 639-1)."""
        ...


@dataclass(frozen=True, slots=True)
class TtsInfo:
    name: str
    rate_hz: int
    "Rate of the frames that `speak` yields."
    voices: Mapping[str, tuple[str, ...]]
    "Language (ISO 639-1) -> voice names; the first is its default."


class Tts(Protocol):
    """Text to speech, streaming."""

    info: TtsInfo

    def speak(
        self, text: AsyncIterable[str], *, language: str, voice: str | None = None, speed: float = 1
    ) -> AsyncGenerator[AudioFrame, None]:
        """Speak each chunk of text as it comes. Frames of any length, `start` continuous from 0;
        the first one as early as possible. Closing the generator stops synthesis at once."""
        ...
