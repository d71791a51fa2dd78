"""Synthesis in threads of this process, clause by clause: sessions take turns."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass

from core.audio import AudioFrame, Pcm, samples_to_ms
from core.errors import EngineError
from engines.base import TtsInfo, WordMark
from engines.tts.text import clauses_of


@dataclass(frozen=True, slots=True)
class WordTiming:
    end_char: int
    "One past its last character in the clause."
    start_ms: float
    "Since the clause's first sample."
    end_ms: float


@dataclass(frozen=True, slots=True)
class SpeechChunk:
    """Samples with the words that end in them or later, none that ended before."""

    pcm: Pcm
    words: tuple[WordTiming, ...] = ()


class ClauseReceiver:
    """Takes one clause's samples from the synthesis thread into the event loop.

    It never blocks the thread, which belongs to every session: a listener that lags holds up its
    own next clause instead, so at most one clause waits here.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: asyncio.Queue[SpeechChunk | EngineError | None] = asyncio.Queue()
        self._is_gone = False
        self._stop: Callable[[], None] | None = None

    def put(self, part: SpeechChunk) -> bool:
        """Thread side. False: nobody listens any more."""
        self._post(part)
        return not self._is_gone

    def when_gone(self, stop: Callable[[], None]) -> None:
        """Thread side: what ends the work at hand at once, called in the event loop."""
        self._stop = stop
        if self._is_gone:
            stop()

    @property
    def is_gone(self) -> bool:
        """Nobody listens any more."""
        return self._is_gone

    def leave(self) -> None:
        """Loop side: no more is heard."""
        self._is_gone = True
        if self._stop is not None:
            self._stop()

    def end(self, error: EngineError | None) -> None:
        """Thread side: no more samples."""
        self._post(error)

    async def get(self) -> SpeechChunk | None:
        """Loop side. None: the clause is over. Raises what the synthesis raised."""
        item = await self._items.get()
        if isinstance(item, EngineError):
            raise item
        return item

    def _post(self, item: SpeechChunk | EngineError | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the loop is closed: its listener is gone with it
            self._is_gone = True


ClauseSynthesizer = Callable[[str, ClauseReceiver], None]
"Speaks one clause, blocking. Raises EngineError; any other exception becomes one."


class ThreadedSynthesis:
    """Jobs never wait for listeners: one that lags holds up only its own next clause."""

    def __init__(self, info: TtsInfo, *, threads: int = 1) -> None:
        self._info = info
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=info.name)

    async def speak(
        self,
        text: AsyncIterable[str],
        synthesise: ClauseSynthesizer,
        on_word: Callable[[WordMark], None] | None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """See `Tts.speak`. Closing it stops at the next part; a job that waits never runs."""
        start = index = 0
        async for chunk in text:
            for begin, clause in clauses_of(chunk):
                base_ms = samples_to_ms(start, self._info.rate_hz)
                async with aclosing(self._parts(clause, synthesise)) as parts:
                    async for part in parts:
                        for word in part.words if on_word is not None else ():
                            assert on_word is not None
                            start_ms, end_ms = base_ms + word.start_ms, base_ms + word.end_ms
                            on_word(WordMark(index, begin + word.end_char, start_ms, end_ms))
                        if len(part.pcm):
                            yield AudioFrame(part.pcm, self._info.rate_hz, start)
                            start += len(part.pcm)
            index += 1

    async def _parts(
        self, clause: str, synthesise: ClauseSynthesizer
    ) -> AsyncGenerator[SpeechChunk, None]:
        listener = ClauseReceiver(asyncio.get_running_loop())

        def job() -> None:
            error: EngineError | None = None
            try:
                if not listener.is_gone:
                    synthesise(clause, listener)
            except EngineError as exc:
                error = exc
            except Exception as exc:
                # Without its message: libraries quote the text that they were to speak.
                error = EngineError("tts", self._info.name, f"failed with {type(exc).__name__}")
            listener.end(error)

        future = self._threads.submit(job)
        try:
            while (part := await listener.get()) is not None:
                yield part
        finally:
            listener.leave()
            future.cancel()
