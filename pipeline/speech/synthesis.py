"""Speech synthesis of one response: its text is cut into clauses, normalized and spoken."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from core.audio import Pcm, ms_to_samples
from core.ports import Metrics
from engines.base import Tts, WordMark
from media.resample import Resampler
from pipeline.shared.plugin_errors import plugin_errors
from pipeline.shared.settings import DEFAULT
from pipeline.shared.turn import TurnMark
from pipeline.shared.work_time import WorkTime
from pipeline.speech.chunker import ClauseChunker
from pipeline.speech.normalize import ClauseNormalizer, NormalizedText
from pipeline.speech.voices import VoiceChoice

MAX_WAITING_CLAUSES = 32
"Most clauses that wait for the voice. A model writes faster than a voice speaks; then it waits."

GATHERED_MS = 400
"""Most ms of sound that are passed on as one chunk. It costs a twentieth of the work of 20 ms
chunks, here and at the client, and delays nothing."""


@dataclass(frozen=True, slots=True)
class SpokenClause:
    """Start of a clause in the sound. The text is as the model wrote it, not as it is spoken."""

    text: str


SpeechOutput = SpokenClause | WordMark | Pcm
"""Pieces of spoken output, in order. A `WordMark` counts characters of its clause as the model
wrote it."""


async def merge_chunks(
    sounds: asyncio.Queue[SpeechOutput | None], rate_hz: int
) -> AsyncGenerator[SpeechOutput, None]:
    """Yields a voice's output until None. Waiting pieces of sound are joined, up to GATHERED_MS.

    Each piece costs the same further on, whatever its length. No piece is delayed for this.
    """
    most = ms_to_samples(GATHERED_MS, rate_hz)
    parts: list[Pcm] = []
    while True:
        if parts and sounds.empty():
            yield _whole(parts)
        sound = await sounds.get()
        if isinstance(sound, np.ndarray):
            if parts and sum(map(len, parts)) + len(sound) > most:
                yield _whole(parts)
            parts.append(sound)
            continue
        if parts:
            yield _whole(parts)
        if sound is None:
            return
        yield sound


def _whole(parts: list[Pcm]) -> Pcm:
    """Returns the parts as one array and empties the list."""
    pcm = parts[0] if len(parts) == 1 else np.concatenate(parts)
    parts.clear()
    return pcm


class SpeechPlan(Protocol):
    """Which voice speaks a text, and how; a `pipeline.response.plan.ResponsePlan` is one."""

    @property
    def language(self) -> str:
        """ISO 639-1 code of the text."""

    @property
    def voice(self) -> str:
        """Name of a voice of `tts`, or DEFAULT."""

    @property
    def speed(self) -> float:
        """1.0 is the voice's own speed."""

    @property
    def tts(self) -> Tts: ...


class SpeechSynthesis:
    """Speaks one response. The first clause is spoken at once, the others once it is confirmed."""

    def __init__(
        self,
        plan: SpeechPlan,
        sounds: asyncio.Queue[SpeechOutput | None],
        mark: Callable[[TurnMark], None],
        is_confirmed: Callable[[], Awaitable[object]],
        work: WorkTime,
        metrics: Metrics,
    ) -> None:
        self._plan, self._sounds, self._mark = plan, sounds, mark
        # mark: notes the first clause and the first sound. is_confirmed: waits for the
        # confirmation.
        self._is_confirmed, self._work, self._metrics = is_confirmed, work, metrics
        self._chunker = ClauseChunker(plan.language)
        self._reader = ClauseNormalizer(plan.language)
        self._clauses: asyncio.Queue[str | None] = asyncio.Queue(MAX_WAITING_CLAUSES)
        self._spoken_clauses: list[NormalizedText] = []
        "Clauses that the voice has taken so far."
        self._words: list[WordMark] = []

    @property
    def has_caught_up(self) -> bool:
        """True when the voice has taken all clauses."""
        return self._clauses.empty()

    async def push(self, delta: str) -> None:
        """Adds text. Waits while too many clauses are queued."""
        for clause in self._chunker.push(delta):
            await self._clauses.put(clause)

    def interject(self, sentence: str) -> None:
        """Speaks a filler now, before text that is not a whole clause yet.

        Dropped if the queue is full. Check `has_caught_up` first.
        """
        for clause in (self._chunker.flush(), sentence):
            if clause is not None and not self._clauses.full():
                self._clauses.put_nowait(clause)

    async def finish(self) -> None:
        """Ends the text: what is left of it is the last clause."""
        if (rest := self._chunker.flush()) is not None:
            await self._clauses.put(rest)
        await self._clauses.put(None)

    async def run(self) -> None:
        """Speaks until the text ends. Raises what the voice raises."""
        plan, source = self._plan, self._speakable()
        with plugin_errors("tts", plan.tts.info.name, self._metrics):
            frames = plan.tts.speak(
                source,
                language=plan.language,
                voice=None if plan.voice == DEFAULT else plan.voice,
                speed=plan.speed,
                on_word=self._words.append,
            )
            async with aclosing(source), aclosing(frames):
                async for frame in frames:
                    self._mark(TurnMark.TTS_FIRST_AUDIO)
                    await self._put_words()
                    await self._put_sound(frame.pcm)
        await self._put_words()

    async def _speakable(self) -> AsyncGenerator[str, None]:
        """Yields clauses for the voice.

        When it asks for the next, the one before has been spoken.
        """
        while (clause := await self._clauses.get()) is not None:
            spoken = self._reader.read(clause)
            if not spoken.text:
                continue
            if self._spoken_clauses:
                await self._is_confirmed()
            self._mark(TurnMark.FIRST_CLAUSE)
            self._spoken_clauses.append(spoken)
            await self._sounds.put(SpokenClause(clause))
            with self._work.busy("voice"):
                yield spoken.text

    async def _put_sound(self, pcm: Pcm) -> None:
        if self._sounds.full():
            with self._work.held("voice"):
                await self._sounds.put(pcm)
        else:
            self._sounds.put_nowait(pcm)

    async def _put_words(self) -> None:
        if not self._words:
            return
        words, self._words[:] = tuple(self._words), ()
        for word in words:
            origin = self._spoken_clauses[word.chunk].origin
            end_char = origin[min(word.end_char, len(origin) - 1)]
            await self._sounds.put(replace(word, end_char=end_char))


async def synthesize_sentence(
    voice: VoiceChoice, sentence: str, plan: SpeechPlan, metrics: Metrics
) -> Pcm:
    """Returns one sentence in another voice than the plan's, at the plan's sample rate.

    Raises EngineError.
    """

    async def text() -> AsyncGenerator[str, None]:
        yield sentence

    with plugin_errors("tts", voice.engine, metrics):
        frames = voice.tts.speak(text(), language=plan.language, voice=voice.voice)
        async with aclosing(frames):
            parts = [frame.pcm async for frame in frames]
    resampler = Resampler(voice.tts.info.rate_hz, plan.tts.info.rate_hz)
    pcm = np.concatenate(parts) if parts else np.zeros(0, np.int16)
    return np.concatenate([resampler.push(pcm), resampler.flush()])
