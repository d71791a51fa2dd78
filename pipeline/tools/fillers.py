"""Fillers while tools are slow, and apologies when something failed or the model has no words."""

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
"""Seconds of silence before the first filler. Longer silence makes users ask whether they were
understood; most tools are done before."""

STILL_WAITING_AFTER_S = (4.5, 10.0)
"""Seconds from one filler to the next. A tool may take 10 s, and a response six rounds of tools.
After three fillers the user knows, so there is no fourth."""

AGAIN_AFTER_S = 0.25
"""Seconds until the next try, where a filler cannot be spoken yet: the turn is not confirmed, or
the voice has not caught up."""

SPOKEN_CHARS_PER_S = 18
"Speed at which text written before tools is taken to be spoken: 200 words a minute."

FALLBACK = "en"
"Language of the sentences where the user's language has none."


class FillerSentences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sentences of one language, in the order in which they are used."""

    waiting: tuple[str, ...]
    "While a tool is slow: the first filler of a response."
    still_waiting: tuple[str, ...]
    "While a tool is slow: later fillers."
    failed: tuple[str, ...]
    "A tool or an engine failed."
    nothing: tuple[str, ...] = ()
    "The model wrote nothing at all. Empty: `failed` is used."
    away: tuple[str, ...] = ()
    "The model cannot be reached. Empty: `failed` is used."
    busy: tuple[str, ...] = ()
    "The server has too much to do. Empty: `failed` is used."


AWAY = (EngineUnreachable, EngineTimeout, EngineCrashed, EngineMissing)
"Errors after which the language model counts as unreachable (`FillerSentences.away`)."


class Fillers:
    """Chooses fillers and apologies, of one session or of all one-shot responses, in rotation.

    Languages without sentences get the English ones, in the voice of the answer. Foreign words are
    taken for a sign of life; silence is not.
    """

    def __init__(self, sentences: Mapping[str, FillerSentences] | None = None) -> None:
        self._sentences = bundled_fillers() if sentences is None else sentences
        self._turn: Counter[str] = Counter()

    def waiting(self, language: str) -> str | None:
        """Returns the first filler of a response."""
        return self._next("waiting", language)

    def still_waiting(self, language: str) -> str | None:
        """Returns a later filler."""
        return self._next("still_waiting", language)

    def failed(self, language: str) -> str | None:
        """Returns the sentence after a tool failed and the model wrote nothing about it."""
        return self._next("failed", language)

    def nothing(self, language: str) -> str | None:
        """Returns the sentence for a model that wrote nothing and called nothing."""
        return self._next("nothing", language)

    def apology(self, error: EarshotError, language: str) -> str | None:
        """Returns the apology for an engine's failure, in a response or in its place."""
        if isinstance(error, OverloadedError):
            return self._next("busy", language)
        if isinstance(error, EngineError) and error.stage != "llm":
            # another engine failed, so the language model is not away
            return self._next("failed", language)
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
    """Measures the silence of one response over all its rounds of tools, and fills it.

    `say` is called from the event loop, for each of the waits above until it returns True. It is
    never called after the `with` block.
    """

    def __init__(self, say: Callable[[str], bool], fillers: Fillers, language: str) -> None:
        self._say, self._fillers, self._language = say, fillers, language
        self._waits_s = [WAITING_AFTER_S, *STILL_WAITING_AFTER_S]
        "Waits that are left, in seconds."
        self._text: str | None = None
        "Filler that could not be spoken yet."
        self._quiet_from = 0.0
        "Time until which something is audible, on the event loop's clock."
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def begin(self) -> None:
        """Starts the clock: tools run. No effect if it runs already."""
        if self._timer is None:
            now = asyncio.get_running_loop().time()
            self._wait(max(now, self._quiet_from))

    def on_text(self, text: str) -> None:
        """Notes text of the model, which will be audible: the silence begins only after it."""
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
    """Returns the bundled sentences by language (ISO 639-1)."""
    text = (files("pipeline.tools") / "fillers.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, FillerSentences])
