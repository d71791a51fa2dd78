"""eSpeak NG in this process: every language it knows, first audio within milliseconds, no GPU.

GPL-3 code behind this one engine. Synthesis runs some thousand times faster than speech, so one
thread serves everybody: each clause is one job, and sessions take turns clause by clause.
"""

import asyncio
import re
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from core.audio import AudioFrame, Pcm
from core.errors import EngineError, RequestError, TooLarge
from engines.base import TtsInfo
from engines.tts.espeak_library import NORMAL_WORDS_PER_MINUTE, EspeakLibrary, Sink, espeak_library

REQUIRES = {"espeakng_loader": "espeakng-loader"}

MAX_CLAUSE_CHARS = 300
"One job: about 10 ms of work and 20 s of audio, the most that waits for a slow listener."

MAX_CHUNK_CHARS = 20_000
"Twenty minutes of speech. A chunk is cleaned in one go on the event loop: 5 ms for this much."

MIN_SPEED, MAX_SPEED = 0.25, 4.0
"What callers may ask for. The library itself stops at 80 and 450 words per minute."

_WORDS_PER_MINUTE = (80, 450)

_CLAUSE_ENDS = (
    re.compile(r"[.!?。！？…]+\s+"),
    re.compile(r"[,;:、，；：]\s*"),
    re.compile(r"\s+"),
)
"Where a long text is cut, best first."

_SPEAKABLE = re.compile(r"[^\s.,;:!?…\-–—'\"()\[\]]")


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    speed: Annotated[float, Meta(ge=0.5, le=2.5)] = 1.0
    "Factor on every request's own speed; 1 is 175 words per minute."


class Synthesiser(Protocol):
    """What the engine needs of the library."""

    def knows(self, voice: str) -> bool: ...

    def synthesise(self, text: str, voice: str, words_per_minute: int, sink: Sink) -> None: ...


class EspeakTts:
    """A `Tts`."""

    def __init__(self, info: TtsInfo, library: Synthesiser, settings: Settings) -> None:
        self.info = info
        self._library = library
        self._settings = settings
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="espeak")

    async def speak(
        self, text: AsyncIterable[str], *, language: str, voice: str | None = None, speed: float = 1
    ) -> AsyncGenerator[AudioFrame, None]:
        """See `Tts.speak`. Raises RequestError for an unknown language, voice or speed, TooLarge
        for a chunk beyond MAX_CHUNK_CHARS."""
        name = self._voice(language, voice)
        words_per_minute = self._words_per_minute(speed)
        start = 0
        async for chunk in text:
            if len(chunk) > MAX_CHUNK_CHARS:
                raise TooLarge(f"text of {len(chunk)} characters, limit {MAX_CHUNK_CHARS}")
            for clause in split_clauses(sanitise(chunk)):
                async with aclosing(self._clause(clause, name, words_per_minute)) as parts:
                    async for pcm in parts:
                        yield AudioFrame(pcm, self.info.rate_hz, start)
                        start += len(pcm)

    async def _clause(
        self, text: str, voice: str, words_per_minute: int
    ) -> AsyncGenerator[Pcm, None]:
        handover = _Handover(asyncio.get_running_loop())

        def job() -> None:
            error: EngineError | None = None
            try:
                if not handover.is_cancelled:
                    self._library.synthesise(text, voice, words_per_minute, handover.put)
            except EngineError as exc:
                error = exc
            handover.end(error)

        future = self._thread.submit(job)
        try:
            while (pcm := await handover.get()) is not None:
                yield pcm
        finally:
            handover.is_cancelled = True
            future.cancel()

    def _voice(self, language: str, voice: str | None) -> str:
        voices = self.info.voices.get(language)
        if voices is None:
            known = ", ".join(sorted(self.info.voices))
            raise RequestError(
                f"espeak does not speak {language!r}; it speaks {known}",
                code="unsupported_language",
                param="language",
            )
        if voice is None:
            return voices[0]
        if not self._library.knows(voice):
            raise RequestError(
                f"espeak has no voice {voice!r}; for {language} it has {', '.join(voices)}, "
                f"each also with +f1 to +f5 or +m1 to +m8",
                code="unknown_voice",
                param="voice",
            )
        return voice

    def _words_per_minute(self, speed: float) -> int:
        if not MIN_SPEED <= speed <= MAX_SPEED:
            raise RequestError(f"speed {speed} is not in [{MIN_SPEED}, {MAX_SPEED}]", param="speed")
        slowest, fastest = _WORDS_PER_MINUTE
        wanted = round(NORMAL_WORDS_PER_MINUTE * self._settings.speed * speed)
        return min(max(wanted, slowest), fastest)


class _Handover:
    """One clause's samples on their way from the synthesis thread into the event loop.

    It never blocks the thread, which belongs to every session: a listener that lags holds up its
    own next clause instead, so at most one clause waits here.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: asyncio.Queue[Pcm | EngineError | None] = asyncio.Queue()
        self.is_cancelled = False

    def put(self, pcm: Pcm) -> bool:
        """Thread side. False: nobody listens any more."""
        self._post(pcm)
        return not self.is_cancelled

    def end(self, error: EngineError | None) -> None:
        """Thread side: no more samples."""
        self._post(error)

    async def get(self) -> Pcm | None:
        """Loop side. None: the clause is over. Raises what the synthesis raised."""
        item = await self._items.get()
        if isinstance(item, EngineError):
            raise item
        return item

    def _post(self, item: Pcm | EngineError | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the loop is closed: its listener is gone with it
            self.is_cancelled = True


def create(settings: Settings) -> EspeakTts:
    library: EspeakLibrary = espeak_library()
    info = TtsInfo("espeak", library.rate_hz, library.voices)
    return EspeakTts(info, library, settings)


def sanitise(text: str) -> str:
    """Control characters (the library's embedded commands start with one), lone surrogates and
    unassigned code points become spaces."""
    return "".join(" " if unicodedata.category(c) in {"Cc", "Cs", "Cn", "Co"} else c for c in text)


def split_clauses(text: str) -> Iterator[str]:
    """Parts of at most MAX_CLAUSE_CHARS, cut where a speaker would pause; nothing for no words."""
    rest = text.strip()
    while len(rest) > MAX_CLAUSE_CHARS:
        cut = _cut(rest)
        yield from split_clauses(rest[:cut])
        rest = rest[cut:].strip()
    if _SPEAKABLE.search(rest):
        yield rest


def _cut(text: str) -> int:
    for pattern in _CLAUSE_ENDS:
        ends = [match.end() for match in pattern.finditer(text, 0, MAX_CLAUSE_CHARS)]
        if ends:
            return ends[-1]
    return MAX_CLAUSE_CHARS
