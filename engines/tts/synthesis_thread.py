"""Synthesis in threads, one clause at a time, so that sessions take turns. eSpeak uses it in the
gateway, the neural voices in their worker process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from queue import PriorityQueue
from typing import TypeVar

from core.audio import AudioFrame, Pcm, samples_to_ms
from core.errors import EarshotError, EngineError
from engines.base import TtsInfo, WordMark
from engines.base.voice import SOUND_UNTIL_S
from engines.tts.text import clauses_of

VOICE_NICE = 5
"""Niceness of the process of a neural voice. A voice computes its sound seconds before it is
played, but the gateway must send a packet every 20 ms. So the gateway goes first."""


@dataclass(frozen=True, slots=True)
class WordTiming:
    """A word of a clause with its times, in ms since the clause's first sample."""

    end_char: int
    "Index in the clause, one past the word's last character."
    start_ms: float
    end_ms: float


@dataclass(frozen=True, slots=True)
class SpeechChunk:
    """Samples of a clause, and words that end within these samples or later."""

    pcm: Pcm
    words: tuple[WordTiming, ...] = ()


class ClauseReceiver:
    """Passes one clause's samples from the synthesis thread to the event loop.

    It never blocks the thread, which all sessions share. A session that reads slowly delays only
    its own next clause, so at most one clause waits here.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: asyncio.Queue[SpeechChunk | EarshotError | None] = asyncio.Queue()
        self._is_cancelled = False
        self._stop: Callable[[], None] | None = None

    def put(self, part: SpeechChunk) -> bool:
        """Sends samples to the event loop (thread side). Returns False after `cancel`."""
        self._post(part)
        return not self._is_cancelled

    def on_cancel(self, stop: Callable[[], None]) -> None:
        """Sets a function that cancels the current work (thread side).

        It is called in the event loop by `cancel`, or at once if that was called before.
        """
        self._stop = stop
        if self._is_cancelled:
            stop()

    @property
    def is_cancelled(self) -> bool:
        """True after `cancel`: no more samples are needed."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Notes that no more samples are needed, and stops the current work (loop side)."""
        self._is_cancelled = True
        if self._stop is not None:
            self._stop()

    def end(self, error: EarshotError | None) -> None:
        """Ends the clause, with the error of the synthesis if it failed (thread side)."""
        self._post(error)

    async def get(self) -> SpeechChunk | None:
        """Returns the next samples; None at the end of the clause (loop side).

        Raises the error of a failed synthesis.
        """
        item = await self._items.get()
        if isinstance(item, EarshotError):
            raise item
        return item

    def _post(self, item: SpeechChunk | EarshotError | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:  # the event loop is closed, and the receiver with it
            self._is_cancelled = True


T = TypeVar("T")

ClauseSynthesizer = Callable[[str, ClauseReceiver], None]
"""Function that synthesises one clause, blocking. An exception that is not an EarshotError becomes
an EngineError."""


class ThreadedSynthesis:
    """Runs the synthesis of all sessions in a few threads, one job per clause.

    Jobs never wait for a session: one that reads slowly delays only its own next clause. The job
    whose listener runs out of sound first comes first. So an answer that begins does not wait for
    the later clauses of others, whose listeners still have seconds to hear.
    """

    def __init__(self, info: TtsInfo, *, threads: int = 1) -> None:
        self._info = info
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=info.name)
        self._jobs: PriorityQueue[tuple[float, int, Callable[[], None]]] = PriorityQueue()
        "Jobs by the time until which their listener has sound; equal ones in their order."
        self._numbers = count()

    async def speak(
        self,
        text: AsyncIterable[str],
        synthesise: ClauseSynthesizer,
        on_word: Callable[[WordMark], None] | None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """Streams the speech of `text` (see `Tts.speak`), synthesised by `synthesise`.

        Closing the generator stops a running job at its next `put`; a waiting job never runs.
        """
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

    async def run(self, work: Callable[[], T]) -> T:
        """Runs other blocking work of the engine in its threads, between clauses."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _parts(
        self, clause: str, synthesise: ClauseSynthesizer
    ) -> AsyncGenerator[SpeechChunk, None]:
        receiver = ClauseReceiver(asyncio.get_running_loop())

        def job() -> None:
            error: EarshotError | None = None
            try:
                if not receiver.is_cancelled:
                    synthesise(clause, receiver)
            except EarshotError as exc:
                error = exc
            except Exception as exc:
                # The message is left out: libraries quote the text in it, which may be private.
                error = EngineError("tts", self._info.name, f"failed with {type(exc).__name__}")
            receiver.end(error)

        now_s = asyncio.get_running_loop().time()
        self._jobs.put((SOUND_UNTIL_S.get(now_s), next(self._numbers), job))
        self._threads.submit(self._run_most_urgent)
        try:
            while (part := await receiver.get()) is not None:
                yield part
        finally:
            receiver.cancel()

    def _run_most_urgent(self) -> None:
        *_, job = self._jobs.get_nowait()  # there are as many jobs as calls of this
        job()
