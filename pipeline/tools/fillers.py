"""Fillers while tools are slow, and apologies for failures and empty answers."""

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
After three fillers the user knows that it takes long, so there is no fourth."""

AGAIN_AFTER_S = 0.25
"""Seconds until the next try if a filler cannot be spoken yet: the turn is not confirmed, or the
voice still speaks earlier text."""

SPOKEN_CHARS_PER_S = 18
"Assumed speed of speech, 200 words a minute: the silence begins when text is spoken."

FALLBACK = "en"
"Language of the sentences if there are none in the user's language."


class FillerSentences(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sentences of one language, in the order in which they are used."""

    waiting: tuple[str, ...]
    "First filler of a response, while a tool is slow."
    still_waiting: tuple[str, ...]
    "Later fillers, while a tool is slow."
    failed: tuple[str, ...]
    "Apologies for a tool or an engine that failed."
    nothing: tuple[str, ...] = ()
    "Apologies for an empty answer of the model. If there are none, `failed` is used."
    away: tuple[str, ...] = ()
    "Apologies for a model that cannot be reached. If there are none, `failed` is used."
    busy: tuple[str, ...] = ()
    "Apologies for an overloaded server. If there are none, `failed` is used."


UNREACHABLE_ERRORS = (EngineUnreachable, EngineTimeout, EngineCrashed, EngineMissing)
"Errors after which the language model counts as unreachable (`FillerSentences.away`)."


class Fillers:
    """Chooses fillers and apologies in rotation, for one session or for all one-shot responses.

    sentences: by language (ISO 639-1); None: the bundled ones. Other languages get the English
    sentences, in the voice of the answer: even foreign words show that the assistant still works.
    Each method returns None if there are no English ones either.
    """

    def __init__(self, sentences: Mapping[str, FillerSentences] | None = None) -> None:
        self._sentences = bundled_fillers() if sentences is None else sentences
        self._use_counts: Counter[str] = Counter()

    def first_filler(self, language: str) -> str | None:
        """Returns the first filler of a response."""
        return self._next("waiting", language)

    def later_filler(self, language: str) -> str | None:
        """Returns a later filler."""
        return self._next("still_waiting", language)

    def tool_failure(self, language: str) -> str | None:
        """Returns the apology for a failed tool, if the model wrote nothing about it."""
        return self._next("failed", language)

    def empty_answer(self, language: str) -> str | None:
        """Returns the apology for a model that wrote nothing and called nothing."""
        return self._next("nothing", language)

    def apology(self, error: EarshotError, language: str) -> str | None:
        """Returns the apology for a failure that ends a response, or prevents it."""
        if isinstance(error, OverloadedError):
            return self._next("busy", language)
        if isinstance(error, EngineError) and error.stage != "llm":
            # Another engine failed, so the language model can still be reached.
            return self._next("failed", language)
        return self._next("away" if isinstance(error, UNREACHABLE_ERRORS) else "failed", language)

    def _next(self, kind: str, language: str) -> str | None:
        sentences = self._sentences.get(language) or self._sentences.get(FALLBACK)
        if sentences is None:
            return None
        choices: tuple[str, ...] = getattr(sentences, kind) or sentences.failed
        count = self._use_counts[kind]
        self._use_counts[kind] += 1
        return choices[count % len(choices)]


class SilenceTimer:
    """Measures the silence of one response, over all its rounds of tools, and fills it.

    It works inside a `with` block.
    say: speaks a filler, called in the event loop; returns False if it cannot be spoken yet, and is
        then called again.
    language: ISO 639-1 code of the fillers.
    """

    def __init__(self, say: Callable[[str], bool], fillers: Fillers, language: str) -> None:
        self._say, self._fillers, self._language = say, fillers, language
        self._waits_s = [WAITING_AFTER_S, *STILL_WAITING_AFTER_S]
        "Waits that are left, in seconds."
        self._text: str | None = None
        "Filler that could not be spoken yet; None: there is none."
        self._quiet_from = 0.0
        "Time at which the answer's text so far is spoken, on the event loop's clock."
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def begin(self) -> None:
        """Starts the timer, because tools run now. Does nothing if it runs already."""
        if self._timer is None:
            now = asyncio.get_running_loop().time()
            self._wait(max(now, self._quiet_from))

    def on_text(self, text: str) -> None:
        """Stops the timer, because text will be spoken: the silence begins after it."""
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
        return (self._fillers.first_filler if is_first else self._fillers.later_filler)(
            self._language
        )

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@cache
def bundled_fillers() -> Mapping[str, FillerSentences]:
    """Returns the bundled sentences by language (ISO 639-1)."""
    text = (files("pipeline.tools") / "fillers.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, FillerSentences])
