"""What an engine is that waits for wake words, as `engines/base/__init__.py` says it of the
others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from core.audio import Pcm
from core.errors import RequestError


@dataclass(frozen=True, slots=True)
class WakeWord:
    """A word or two that a session can wait for."""

    name: str
    "By which it is asked for: `okay_nabu`."
    phrase: str
    "As it is said: Okay Nabu."
    languages: tuple[str, ...]
    "ISO 639-1: in whose pronunciation it was trained."


@dataclass(frozen=True, slots=True)
class WakeWordDetection:
    """A wake word was heard."""

    name: str
    at: int
    "Samples of the stream until it was told: the word ended shortly before."
    ended: int
    """Where it ended, in the same samples: not before it, as far as that is known of this word, for
    what follows is taken for speech to the assistant. `at`, if nothing is known."""


class WakeWordDetector(Protocol):
    """Waits for wake words in one stream; stateful, and keeps some 10 ms of its sound."""

    def push(self, pcm: Pcm) -> tuple[WakeWordDetection, ...]:
        """The next samples, 16 kHz, as many as there are; what was heard in them, in order. A word
        is told once each time it is said. Blocking: 2 ms per word and second of audio."""
        ...

    def reset(self) -> None:
        """Forget everything heard; positions begin anew."""
        ...


class WakeWordEngine(Protocol):
    """Makes a `WakeWordDetector` for each stream; the state is never shared."""

    name: str
    words: tuple[WakeWord, ...]
    "All that it knows."

    def open(self, names: Sequence[str]) -> WakeWordDetector:
        """A stream that waits for these of its words."""
        ...


def find_word(engine: WakeWordEngine | None, name: str) -> WakeWord | None:
    """Returns the word, or None for the empty name. Raises RequestError for an unknown name."""
    if not name:
        return None
    words = {} if engine is None else {word.name: word for word in engine.words}
    if name in words:
        return words[name]
    known = f"these are: {', '.join(words)}" if words else "this server has no engine for any"
    raise RequestError(
        f"wake word {name!r} is not known; {known}", code="invalid_value", param="earshot.wake_word"
    )
