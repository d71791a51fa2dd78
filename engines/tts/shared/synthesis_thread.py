"""Synthesis in threads, one clause at a time, so that sessions take turns. eSpeak uses it in the
gateway, the neural voices in their worker process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from queue import PriorityQueue
from threading import Lock
from typing import TypeVar

from core.audio import AudioFrame, Pcm, samples_to_ms
from core.errors import EarshotError, EngineError
from engines.base import TtsInfo, WordMark
from engines.base.voice import SOUND_UNTIL_S
from engines.tts.shared.text import clauses_of

VOICE_NICE = 5
"""Niceness of the process of a neural voice. A voice computes its sound seconds before it is
played, but the gateway must send a packet every 20 ms. So the gateway goes first."""


INTERRUPTED_AHEAD_S = 0.5
"""Least sound that a listener still has when the clause of this listener gives way to another one:
many times what a clause takes."""

INTERRUPTED_WITHIN_S = 0.02
"""Longest time for which a clause ran when it gives way. Later on, it has little left to do, and
what was done is lost."""


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
        self._lock = Lock()
        "Protects what `put` and `interrupt` decide together."
        self._has_sound = self._is_interrupted = self._was_interrupted = False

    def put(self, part: SpeechChunk) -> bool:
        """Sends samples to the event loop (thread side). Returns False after `cancel`, and after
        `interrupt`, when they are not sent: the clause is synthesised again later."""
        with self._lock:
            if self._is_interrupted:
                return False
            self._has_sound = True
        self._post(part)
        return not self._is_cancelled

    def interrupt(self) -> None:
        """Stops the current work, so that a more urgent clause comes first (loop side).

        Does nothing for a clause that has sound already, that was interrupted before, or whose
        engine cannot stop.
        """
        with self._lock:
            if self._has_sound or self._was_interrupted or self._stop is None:
                return
            self._is_interrupted = self._was_interrupted = True
            self._stop()

    def resume(self) -> bool:
        """Returns True if the clause was interrupted and must be synthesised again (thread
        side)."""
        with self._lock:
            was_interrupted, self._is_interrupted, self._stop = self._is_interrupted, False, None
        return was_interrupted and not self._is_cancelled

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


@dataclass(frozen=True, slots=True, order=True)
class _ClauseJob:
    """One clause. Jobs are in the order of their urgency."""

    sound_until_s: float
    "Second of the loop's clock until which the listener has sound."
    number: int
    receiver: ClauseReceiver = field(compare=False)
    work: Callable[[], EarshotError | None] = field(compare=False)


class ThreadedSynthesis:
    """Runs the synthesis of all sessions in a few threads, one job per clause.

    Jobs never wait for a session: one that reads slowly delays only its own next clause. The job
    whose listener runs out of sound first comes first. So an answer that begins does not wait for
    the later clauses of others, whose listeners still have seconds to hear. A clause that has just
    begun for such a listener gives way, once.
    """

    def __init__(self, info: TtsInfo, *, threads: int = 1) -> None:
        self._info, self._thread_count = info, threads
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=info.name)
        self._jobs: PriorityQueue[_ClauseJob] = PriorityQueue()
        self._numbers = count()
        self._running: dict[_ClauseJob, float] = {}
        "Running job -> second at which it began."

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
        loop = asyncio.get_running_loop()
        receiver = ClauseReceiver(loop)

        def work() -> EarshotError | None:
            try:
                if not receiver.is_cancelled:
                    synthesise(clause, receiver)
            except EarshotError as exc:
                return exc
            except Exception as exc:
                # The message is left out: libraries quote the text in it, which may be private.
                return EngineError("tts", self._info.name, f"failed with {type(exc).__name__}")
            return None

        now_s = loop.time()
        job = _ClauseJob(SOUND_UNTIL_S.get(now_s), next(self._numbers), receiver, work)
        self._jobs.put(job)
        self._threads.submit(self._run_most_urgent, loop.time)
        self._interrupt_for(job, now_s)
        try:
            while (part := await receiver.get()) is not None:
                yield part
        finally:
            receiver.cancel()

    def _interrupt_for(self, job: "_ClauseJob", now_s: float) -> None:
        """Lets the running clause whose listener has sound for longest give way to `job`, if all
        threads are busy. One that has run for a while is left alone: it is near its end."""
        running = dict(self._running)
        if len(running) < self._thread_count:
            return
        last = max(running)
        is_young = now_s - running[last] <= INTERRUPTED_WITHIN_S
        if is_young and last.sound_until_s - max(now_s, job.sound_until_s) >= INTERRUPTED_AHEAD_S:
            last.receiver.interrupt()

    def _run_most_urgent(self, now: Callable[[], float]) -> None:
        job = self._jobs.get_nowait()  # there are as many jobs as calls of this
        self._running[job] = now()
        error = job.work()
        del self._running[job]
        if job.receiver.resume():
            self._jobs.put(job)
            self._threads.submit(self._run_most_urgent, now)
        else:
            job.receiver.end(error)
