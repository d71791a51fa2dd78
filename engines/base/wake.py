"""Protocols for wake-word engines, and the values that are passed to and from them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from core.audio import Pcm
from core.errors import ConfigError, RequestError


@dataclass(frozen=True, slots=True)
class WakeWord:
    """A word or short phrase that a session can wait for."""

    name: str
    "Name by which it is requested, such as `okay_nabu`."
    phrase: str
    'The words as they are spoken, such as "Okay Nabu".'
    languages: tuple[str, ...]
    "ISO 639-1 codes of the languages whose pronunciation it was trained on."
    is_stop: bool = False
    "True for a stop word: it ends the answer that sounds, and wakes nothing."


@dataclass(frozen=True, slots=True)
class WakeWordDetection:
    """A wake word that was recognised in the audio."""

    name: str
    "`WakeWord.name` of the word."
    position: int
    "Number of samples of the stream up to the detection. The word ended shortly before that."
    word_end: int
    """Estimated number of samples up to the end of the word; equal to `position` if it is not
    known. Too late is better than too early: audio after it counts as speech to the assistant."""


class WakeWordDetector(Protocol):
    """Detector of wake words in one audio stream. It has state, and keeps some 10 ms of audio."""

    def push(self, pcm: Pcm) -> tuple[WakeWordDetection, ...]:
        """Takes the next samples and returns the wake words found in them, in their order.

        Each spoken wake word is returned once. `pcm`: int16, 16 kHz, mono, of any length. Blocks
        for 2 ms per wake word and second of audio.
        """
        ...

    def reset(self) -> None:
        """Forgets all audio that it has received. Sample positions start again at 0."""
        ...


class WakeWordEngine(Protocol):
    """Creates a `WakeWordDetector` for each stream. Streams share no state."""

    name: str
    "Name of the engine, as in the configuration."
    words: tuple[WakeWord, ...]
    "All wake words and stop words that the engine knows."

    def open(self, names: Sequence[str]) -> WakeWordDetector:
        """Returns a detector for one stream. `names`: names of the words that it detects, all from
        `words`."""
        ...


def wake_words(engine: WakeWordEngine) -> tuple[WakeWord, ...]:
    """Returns the words of an engine that wake a session."""
    return tuple(word for word in engine.words if not word.is_stop)


def stop_words(engine: WakeWordEngine) -> tuple[WakeWord, ...]:
    """Returns the words of an engine that only end an answer."""
    return tuple(word for word in engine.words if word.is_stop)


def mark_stop_words(
    words: Sequence[WakeWord], names: Sequence[str], engine: str
) -> tuple[WakeWord, ...]:
    """Returns the words, those with these names as stop words. Raises ConfigError for an unknown
    name. `engine`: name of the engine, for the error."""
    known = [word.name for word in words]
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(
            f"wake.{engine}: stop_words names {', '.join(unknown)}; the words are:"
            f" {', '.join(known) or 'none'}"
        )
    return tuple(replace(word, is_stop=word.name in names) for word in words)


def find_wake_word(engine: WakeWordEngine | None, name: str) -> WakeWord | None:
    """Returns the wake word with this name; None for the empty name. Raises RequestError for an
    unknown name. `engine`: None if the server has no wake-word engine."""
    if not name:
        return None
    words = {} if engine is None else {word.name: word for word in wake_words(engine)}
    if name in words:
        return words[name]
    known = f"these are: {', '.join(words)}" if words else "this server has no wake words"
    raise RequestError(
        f"wake word {name!r} is not known; {known}", code="invalid_value", param="earshot.wake_word"
    )
