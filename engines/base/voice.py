"""Interfaces of voices, and the values that they take and return."""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from core.audio import AudioFrame, Pcm

SOUND_UNTIL_S: ContextVar[float] = ContextVar("sound_until_s")
"""Time of the event loop at which the sound that the listener has ends. It is in the past if the
listener waits for more. Unset: the speech begins now. Of several clauses, a voice first speaks the
one whose listener runs out of sound first."""


@dataclass(frozen=True, slots=True)
class WordMark:
    """The time at which one word of the text is spoken."""

    chunk: int
    "Index of the chunk of text given to `speak`, from 0."
    end_char: int
    "Index after the word's last character in that chunk."
    start_ms: float
    "Milliseconds from the first sample that this call of `speak` produced."
    end_ms: float


Gender = Literal["female", "male"]
"How a voice sounds, as its makers say."


@dataclass(frozen=True, slots=True)
class TtsInfo:
    """Properties of a TTS engine that callers need to know."""

    name: str
    "Name of the engine."
    rate_hz: int
    "Sample rate of the frames that `speak` yields."
    voices: Mapping[str, tuple[str, ...]]
    "Voice names by language (ISO 639-1). The first name is the language's default."
    has_word_times: bool = False
    "True: the engine calls `on_word` for every word."
    genders: Mapping[str, Gender] = field(default_factory=dict)
    "Gender by voice name, for the voices whose makers state it."
    can_clone: bool = False
    "True: the engine is a `CloningTts`, and also speaks in voices that are made of recordings."
    ends_with_pause: bool = True
    "False: the sound of a clause ends with its last word, and the caller makes the pause."
    loudness_lufs: float | None = None
    "Loudness of the voices by ITU-R BS.1770. None: not known."


class Tts(Protocol):
    """Streaming text to speech."""

    @property
    def info(self) -> TtsInfo:
        """Properties of the loaded voices."""
        ...

    def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """Speaks each chunk of text as it arrives, and yields the sound.

        Frames have any length. Their `start` counts on from 0 without gaps. The first frame comes
        as early as possible. Closing the generator stops the synthesis at once.

        `language`: ISO 639-1. `voice`: a name from `TtsInfo.voices`; None: the language's default.
        `speed`: factor, 1 is normal. `on_word`: is called with each word before the frame in which
        the word ends. Raises EngineError, RequestError.
        """
        ...


@runtime_checkable
class CloningTts(Protocol):
    """A `Tts` that also speaks in voices made of recordings, once it holds them."""

    async def voice_condition(self, pcm: Pcm) -> bytes:
        """Returns the condition of the voice in a recording: all that the engine needs in order to
        speak in it. `pcm`: speech at `TtsInfo.rate_hz`. Raises EngineError."""
        ...

    def hold_voice(self, voice: str, condition: bytes) -> None:
        """Keeps a voice in memory, so that `speak` knows it by this name. Few are kept: the least
        recently used ones are dropped. Raises EngineError for a condition of another model."""
        ...

    def forget_voice(self, voice: str) -> None:
        """Drops a voice. Does nothing for one that is not held."""
        ...


@dataclass(frozen=True, slots=True)
class StageTime:
    """Time that one clause spent in one stage of a model."""

    stage: str
    "Name of the stage."
    queue_s: float
    "Time that it waited for a place."
    compute_s: float
    "Time from its start to its end, with the other clauses of the batch."
    batch: float
    "Mean number of clauses in the steps in which it took part."


@runtime_checkable
class StagedTts(Protocol):
    """A `Tts` that runs clauses through several stages, and measures them."""

    def take_stage_times(self) -> list[StageTime]:
        """Returns what was measured since the last call, of all clauses, and forgets it."""
        ...
