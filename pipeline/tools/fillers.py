"""What the user hears while tools are slow, and when one failed or the model has no words."""

import asyncio
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Self

import msgspec

from core.errors import (
    EarshotError,
    EngineCrashed,
    EngineError,
    EngineMissing,
    EngineTimeout,
    EngineUnreachable,
    OverloadedError,
)

WAITING_AFTER_S = 1.5
"Of silence. Longer makes people ask whether they were heard; most tools are done before."

STILL_WAITING_AFTER_S = (4.5, 10.0)
"""After the sentence before, for each that follows. A tool may take 10 s, and an answer six rounds
of them; who has been told three times knows it."""

AGAIN_AFTER_S = 0.25
"Where it cannot be said yet: the turn may not be over, or the voice has not caught up."

SPOKEN_CHARS_PER_S = 18
"200 words a minute: how long what the model wrote before its tools is taken to sound."

FALLBACK = "en"


class FillerSentences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one language; in the order in which they are used."""

    waiting: tuple[str, ...]
    still_waiting: tuple[str, ...]
    failed: tuple[str, ...]
    nothing: tuple[str, ...] = ()
    "The model wrote nothing at all. Without one: as `failed`."
    away: tuple[str, ...] = ()
    "The model cannot be reached. Without one: as `failed`."
    busy: tuple[str, ...] = ()
    "There is more to do than can be done. Without one: as `failed`."


AWAY = (EngineUnreachable, EngineTimeout, EngineCrashed, EngineMissing)


class Fillers:
    """Of one session, or of all single questions: sentences take turns. In a language without any
    they are English, read by the voice that answers: foreign words are taken for a sign of life,
    silence for none."""

    def __init__(self, sentences: Mapping[str, FillerSentences] | None = None) -> None:
        self._sentences = bundled_fillers() if sentences is None else sentences
        self._turn: Counter[str] = Counter()

    def waiting(self, language: str) -> str | None:
        """The first in an answer."""
        return self._next("waiting", language)

    def still_waiting(self, language: str) -> str | None:
        """Every further one."""
        return self._next("still_waiting", language)

    def failed(self, language: str) -> str | None:
        """A tool failed, and the model wrote nothing about it."""
        return self._next("failed", language)

    def nothing(self, language: str) -> str | None:
        """The model wrote nothing, and called nothing."""
        return self._next("nothing", language)

    def regret(self, error: EarshotError, language: str) -> str | None:
        """An engine failed, in an answer or in its place."""
        if isinstance(error, OverloadedError):
            return self._next("busy", language)
        if isinstance(error, EngineError) and error.stage != "llm":
            return self._next("failed", language)  # the language model is not away
        return self._next("away" if isinstance(error, AWAY) else "failed", language)

    def _next(self, kind: str, language: str) -> str | None:
        sentences = self._sentences.get(language) or self._sentences.get(FALLBACK)
        if sentences is None:
            return None
        choices: tuple[str, ...] = getattr(sentences, kind) or sentences.failed
        turn = self._turn[kind]
        self._turn[kind] += 1
        return choices[turn % len(choices)]


class SilenceTimer:
    """Of one answer: how long its user has heard nothing, over all its rounds of tools. `say` is
    called from the event loop for each of the waits above until it was said; after leaving
    never."""

    def __init__(self, say: Callable[[str], bool], fillers: Fillers, language: str) -> None:
        self._say, self._fillers, self._language = say, fillers, language
        self._waits_s = [WAITING_AFTER_S, *STILL_WAITING_AFTER_S]
        "Those that are left."
        self._text: str | None = None
        "What could not be said yet."
        self._quiet_from = 0.0
        "Until then something sounds; the event loop's seconds."
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def begin(self) -> None:
        """Tools run: until the model has words again, silence is spoken over. If that is so
        already, the clock goes on."""
        if self._timer is None:
            now = asyncio.get_running_loop().time()
            self._wait(max(now, self._quiet_from))

    def broken(self, text: str) -> None:
        """The model wrote something to be heard."""
        if not text.strip():
            return
        self._stop()
        now = asyncio.get_running_loop().time()
        self._quiet_from = max(now, self._quiet_from) + len(text) / SPOKEN_CHARS_PER_S

    def _wait(self, since: float) -> None:
        if self._waits_s:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(since + self._waits_s[0], self._speak)

    def _speak(self) -> None:
        loop = asyncio.get_running_loop()
        if self._text is None:
            self._text = self._next()
        if self._text is not None and not self._say(self._text):
            self._timer = loop.call_later(AGAIN_AFTER_S, self._speak)
            return
        self._text = None
        self._waits_s.pop(0)
        self._wait(loop.time())

    def _next(self) -> str | None:
        is_first = self._waits_s[0] == WAITING_AFTER_S
        return (self._fillers.waiting if is_first else self._fillers.still_waiting)(self._language)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@cache
def bundled_fillers() -> Mapping[str, FillerSentences]:
    """Language (ISO 639-1) -> its sentences."""
    text = (files("pipeline.tools") / "fillers.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, FillerSentences])
