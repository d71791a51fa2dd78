"""What the user hears while a tool is slow, and when it failed and the model has no words."""

import asyncio
import tomllib
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import TypeVar

import msgspec

T = TypeVar("T")

WAITING_AFTER_S = 1.5
"Longer silence makes people ask whether they were heard; most tools are done before."

STILL_WAITING_AFTER_S = 6.0
"The first sentence has been said, and a tool may take 10 s."

FALLBACK = "en"


class Sentences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one language; in the order in which they are used."""

    waiting: tuple[str, ...]
    still_waiting: tuple[str, ...]
    failed: tuple[str, ...]


class Fillers:
    """Of one conversation: sentences take turns. In a language without any they are English, read
    by the voice that answers: foreign words are taken for a sign of life, silence for none."""

    def __init__(self, sentences: Mapping[str, Sentences] | None = None) -> None:
        self._sentences = bundled() if sentences is None else sentences
        self._turn = {"waiting": 0, "still_waiting": 0, "failed": 0}

    def waiting(self, language: str) -> str | None:
        """After WAITING_AFTER_S."""
        return self._next("waiting", language)

    def still_waiting(self, language: str) -> str | None:
        """After STILL_WAITING_AFTER_S."""
        return self._next("still_waiting", language)

    def failed(self, language: str) -> str | None:
        """A tool failed, and the model wrote nothing about it."""
        return self._next("failed", language)

    def _next(self, kind: str, language: str) -> str | None:
        sentences = self._sentences.get(language) or self._sentences.get(FALLBACK)
        if sentences is None:
            return None
        choices: tuple[str, ...] = getattr(sentences, kind)
        turn = self._turn[kind]
        self._turn[kind] += 1
        return choices[turn % len(choices)]


async def with_filler(
    work: Awaitable[T], say: Callable[[str], None], fillers: Fillers, language: str
) -> T:
    """What `work` gives, and whatever it raises. `say` is called from the event loop, at most
    twice, while it takes long; after it has ended or was cancelled never."""

    def tell(text: str | None) -> None:
        if text is not None:
            say(text)

    loop = asyncio.get_running_loop()
    timers = (
        loop.call_later(WAITING_AFTER_S, lambda: tell(fillers.waiting(language))),
        loop.call_later(STILL_WAITING_AFTER_S, lambda: tell(fillers.still_waiting(language))),
    )
    try:
        return await work
    finally:
        for timer in timers:
            timer.cancel()


@cache
def bundled() -> Mapping[str, Sentences]:
    """Language (ISO 639-1) -> its sentences."""
    text = (files("pipeline") / "fillers.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Sentences])
