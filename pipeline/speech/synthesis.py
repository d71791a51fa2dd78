"""Speech synthesis of one text, for a response or a file: it is cut into clauses, normalized and
spoken."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from core.audio import Pcm, ms_to_samples, samples_to_ms
from core.ports import Metrics
from engines.base import Tts, TtsInfo, WordMark
from engines.base.voice import SOUND_UNTIL_S
from media.resample import Resampler
from pipeline.shared.plugin_errors import plugin_errors
from pipeline.speech.chunker import (
    CLOSERS,
    SENTENCE_ENDS,
    WIDE_SENTENCE_ENDS,
    ClauseChunker,
)
from pipeline.speech.normalize import ClauseNormalizer, NormalizedText

MAX_WAITING_CLAUSES = 32
"Most clauses that wait for the voice. A model writes faster than a voice speaks; then it waits."

GATHERED_MS = 400
"""Most ms of sound that are passed on as one chunk. A chunk of this length costs a twentieth of the
work of 20 ms chunks, here and at the client. Nothing is delayed: only chunks that wait already are
joined."""


SENTENCE_PAUSE_MS, PAUSE_MS = 300.0, 150.0
"""Pauses after a sentence and after another clause, for a voice that makes none. They are those of
eSpeak inside a text."""

MAX_GAIN = 2.0
"Largest factor by which samples are raised to match another voice. A larger one would distort."

ENDS_OF_SENTENCES = tuple(SENTENCE_ENDS + WIDE_SENTENCE_ENDS)


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


@dataclass(frozen=True, slots=True)
class SpeechPlan:
    """Voice, language and speed with which a text is spoken."""

    tts: Tts
    language: str
    "ISO 639-1 code of the text."
    voice: str | None = None
    "Name of a voice of `tts`. None: its voice for the language."
    speed: float = 1.0
    "Speed of speech; 1.0 is the voice's own."
    volume: float = 1.0
    "Factor on the samples; 1.0 is the voice's own."


class _SoundUntil:
    """Keeps SOUND_UNTIL_S for a speech that begins now, and is played from its first sound on."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._now = asyncio.get_running_loop().time
        self._until_s = self._now()
        self._has_begun = False
        SOUND_UNTIL_S.set(self._until_s)

    def add(self, pcm: Pcm) -> None:
        """Takes the next sound."""
        now_s = self._now()
        begins_s = max(self._until_s, now_s) if self._has_begun else now_s
        self._has_begun = True
        self._until_s = begins_s + len(pcm) / self._rate_hz
        SOUND_UNTIL_S.set(self._until_s)


@dataclass(frozen=True, slots=True)
class PlannedClause:
    """A clause that is spoken in a manner of its own: in another language, voice or speed."""

    text: str
    "Text of the clause as it was written."
    plan: SpeechPlan


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence between two clauses."""

    duration_ms: float


SpeechStep = str | PlannedClause | Pause
"""One step of a speech. A string is a clause in the manner of the whole text."""

ClauseContext = Callable[[str], AbstractAsyncContextManager[None]]
"""Makes the context in which the voice speaks a clause. It is entered when the voice takes the
clause, and left when the voice asks for the next. It gets the clause as the model wrote it."""


class SpeechSynthesis:
    """Speaks one text. The voice begins with the first clause, while others are still written.

    Example:
        synthesis = SpeechSynthesis(plan, clauses_of(texts, plan.language))
        async with aclosing(synthesis.stream()) as sounds:
            async for pcm in sounds:
                ...
    """

    def __init__(
        self,
        plan: SpeechPlan,
        clauses: AsyncGenerator[SpeechStep, None],
        metrics: Metrics | None = None,
        around_clause: ClauseContext = lambda _: nullcontext(),
        *,
        has_words: bool = False,
    ) -> None:
        """Takes the voice, and the clauses as the model wrote them.

        metrics: counts errors of the voice. None: the caller counts them.
        around_clause: makes a context that is open while the voice speaks a clause.
        has_words: True to ask the voice for the times of the words.
        """
        self._plan, self._clauses, self._metrics = plan, clauses, metrics
        self._around_clause, self._has_words = around_clause, has_words
        self._next: SpeechStep | None = None
        "Step that comes next. None: the text is over."
        self._samples = 0
        "Length of the sound so far."
        self._normalizer = ClauseNormalizer(plan.language)
        self._paused_ms: list[float] = []
        "Sum of the pauses before each clause that the voice has taken."
        self._due_pause_ms = 0.0
        "Pause that the last clause asks for, if its voice did not make it."
        self._spoken: list[NormalizedText] = []
        "Clauses that the voice has taken so far."
        self._words: list[WordMark] = []

    async def stream(self) -> AsyncGenerator[Pcm, None]:
        """Yields the sound at the sample rate of the plan's voice. Closing it stops the voice and
        closes the clauses.

        Clauses that follow each other in one manner are one request to the voice. Raises what the
        voice raises: EngineError, RequestError.
        """
        until = _SoundUntil(self._plan.tts.info.rate_hz)
        async with aclosing(self._clauses):
            await self._advance()
            while self._next is not None:
                if isinstance(self._next, Pause):
                    sounds = self._silence(self._next.duration_ms)
                    self._due_pause_ms = 0.0
                    await self._advance()
                else:
                    sounds = self._passage(self._plan_of(self._next))
                async with aclosing(sounds):
                    async for pcm in sounds:
                        self._samples += len(pcm)
                        until.add(pcm)
                        yield pcm

    def take_words(self) -> list[WordMark]:
        """Returns the words that have ended since the last call.

        Their characters are counted in the clause as the model wrote it.
        """
        words: list[WordMark] = []
        for word in self._words:
            origin = self._spoken[word.chunk].origin
            end_char = origin[min(word.end_char, len(origin) - 1)]
            words.append(replace(word, end_char=end_char))
        self._words.clear()
        return words

    async def _advance(self) -> None:
        self._next = await anext(self._clauses, None)

    def _plan_of(self, clause: str | PlannedClause) -> SpeechPlan:
        return self._plan if isinstance(clause, str) else clause.plan

    async def _silence(self, duration_ms: float) -> AsyncGenerator[Pcm, None]:
        rate_hz = self._plan.tts.info.rate_hz
        left, most = (ms_to_samples(length_ms, rate_hz) for length_ms in (duration_ms, GATHERED_MS))
        while left > 0:
            yield np.zeros(min(left, most), np.int16)
            left -= most

    async def _passage(self, plan: SpeechPlan) -> AsyncGenerator[Pcm, None]:
        """Yields the sound of the next clauses that have this plan."""
        info, first = plan.tts.info, self._plan.tts.info
        gain = plan.volume * matching_gain(info, first)
        before, before_ms = len(self._spoken), samples_to_ms(self._samples, first.rate_hz)
        paused_before_ms = self._paused_ms[-1] if self._paused_ms else 0.0
        made_ms = paused_before_ms

        def add_word(word: WordMark) -> None:
            chunk = before + word.chunk
            shift_ms = before_ms + self._paused_ms[chunk] - paused_before_ms
            start_ms, end_ms = shift_ms + word.start_ms, shift_ms + word.end_ms
            self._words.append(WordMark(chunk, word.end_char, start_ms, end_ms))

        source = self._speakable(plan)
        resampler = Resampler(info.rate_hz, first.rate_hz)
        with plugin_errors("tts", info.name, self._metrics):
            frames = plan.tts.speak(
                source,
                language=plan.language,
                voice=plan.voice,
                speed=plan.speed,
                on_word=add_word if self._has_words else None,
            )
            async with aclosing(source), aclosing(frames):
                async for frame in frames:
                    if self._paused_ms and self._paused_ms[-1] > made_ms:
                        if len(pcm := resampler.flush()):
                            yield scaled(pcm, gain)
                        async for pcm in self._silence(self._paused_ms[-1] - made_ms):
                            yield pcm
                        made_ms = self._paused_ms[-1]
                    if len(pcm := resampler.push(frame.pcm)):
                        yield scaled(pcm, gain)
            if len(pcm := resampler.flush()):
                yield scaled(pcm, gain)

    async def _speakable(self, plan: SpeechPlan) -> AsyncGenerator[str, None]:
        """Yields the next clauses that have this plan, for the voice.

        When it asks for the next, the one before has been spoken.
        """
        while isinstance(self._next, str | PlannedClause) and self._plan_of(self._next) == plan:
            clause = self._next if isinstance(self._next, str) else self._next.text
            spoken = self._normalizer.read(clause, plan.language)
            # code and emoji are not read aloud
            if spoken.text:
                async with self._around_clause(clause):
                    self._take(spoken, plan)
                    yield spoken.text
            await self._advance()

    def _take(self, spoken: NormalizedText, plan: SpeechPlan) -> None:
        """Notes that the voice takes a clause, and the pauses before and after it."""
        paused_ms = self._paused_ms[-1] if self._paused_ms else 0.0
        self._spoken.append(spoken)
        self._paused_ms.append(paused_ms + self._due_pause_ms)
        self._due_pause_ms = 0.0
        if not plan.tts.info.ends_with_pause:
            is_sentence = spoken.text.rstrip(CLOSERS).endswith(ENDS_OF_SENTENCES)
            self._due_pause_ms = (SENTENCE_PAUSE_MS if is_sentence else PAUSE_MS) / plan.speed


async def clauses_of(texts: AsyncGenerator[str, None], language: str) -> AsyncGenerator[str, None]:
    """Cuts a text into clauses, as far as the voice has asked for them. Closing it closes `texts`.

    texts: pieces of one text as they come.
    """
    chunker = ClauseChunker(language)
    async with aclosing(texts):
        async for text in texts:
            for clause in chunker.push(text):
                yield clause
    if (rest := chunker.flush()) is not None:
        yield rest


class ClauseQueue:
    """Cuts a text into clauses while it is written, at most MAX_WAITING_CLAUSES ahead of the
    voice."""

    def __init__(self, language: str) -> None:
        self._chunker = ClauseChunker(language)
        self._waiting: asyncio.Queue[str | None] = asyncio.Queue(MAX_WAITING_CLAUSES)

    @property
    def is_empty(self) -> bool:
        """True when the voice has taken all clauses."""
        return self._waiting.empty()

    async def push(self, delta: str) -> None:
        """Adds text. Waits while too many clauses are queued."""
        for clause in self._chunker.push(delta):
            await self._waiting.put(clause)

    def interject(self, sentence: str) -> None:
        """Adds a filler, before text that is not a whole clause yet.

        Dropped if the queue is full. Check `is_empty` first.
        """
        for clause in (self._chunker.flush(), sentence):
            if clause is not None and not self._waiting.full():
                self._waiting.put_nowait(clause)

    async def finish(self) -> None:
        """Ends the text: what is left of it is the last clause."""
        if (rest := self._chunker.flush()) is not None:
            await self._waiting.put(rest)
        await self._waiting.put(None)

    async def clauses(self) -> AsyncGenerator[str, None]:
        """Yields the clauses until the text is finished."""
        while (clause := await self._waiting.get()) is not None:
            yield clause


async def speak_sentence(plan: SpeechPlan, sentence: str, rate_hz: int, metrics: Metrics) -> Pcm:
    """Returns the whole sound of one sentence at `rate_hz`. Raises EngineError, RequestError."""
    clauses = ClauseQueue(plan.language)
    clauses.interject(sentence)
    await clauses.finish()
    resampler = Resampler(plan.tts.info.rate_hz, rate_hz)
    async with aclosing(SpeechSynthesis(plan, clauses.clauses(), metrics).stream()) as sounds:
        parts = [resampler.push(pcm) async for pcm in sounds]
    return np.concatenate([*parts, resampler.flush()])


def matching_gain(voice: TtsInfo, reference: TtsInfo) -> float:
    """Returns the factor that makes an engine as loud as another one; 1 if one is not known."""
    if voice.loudness_lufs is None or reference.loudness_lufs is None:
        return 1.0
    return min(float(10 ** ((reference.loudness_lufs - voice.loudness_lufs) / 20)), MAX_GAIN)


def scaled(pcm: Pcm, gain: float) -> Pcm:
    """Returns the samples times `gain`, within their range."""
    if gain == 1:
        return pcm
    louder: Pcm = np.clip(np.rint(pcm * gain), -32_768, 32_767).astype(np.int16)
    return louder
