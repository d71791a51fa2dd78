"""The sound of clauses, pauses and changes of the voice, the merging of a voice's small chunks, and
what a voice knows of its listener."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest

from core.audio import AudioFrame, Pcm
from engines.base import TtsInfo, WordMark
from engines.base.voice import SOUND_UNTIL_S
from pipeline.speech.synthesis import (
    GATHERED_MS,
    Pause,
    PlannedClause,
    SpeechOutput,
    SpeechPlan,
    SpeechStep,
    SpeechSynthesis,
    SpokenClause,
    merge_chunks,
)
from tests.loop import run_virtual
from tests.pipeline.fakes import ToneTts

RATE_HZ = 8000
MOST = RATE_HZ * GATHERED_MS // 1000


def sound(first: int, samples: int) -> Pcm:
    return np.arange(first, first + samples, dtype=np.int16)


def taken(given: list[SpeechOutput | None]) -> list[SpeechOutput]:
    """Returns the merged chunks of what waits in the queue."""
    got: list[SpeechOutput] = []

    async def main() -> None:
        sounds: asyncio.Queue[SpeechOutput | None] = asyncio.Queue()
        for one in given:
            sounds.put_nowait(one)
        got.extend([one async for one in merge_chunks(sounds, RATE_HZ)])

    run_virtual(main())
    return got


def lengths(got: list[SpeechOutput]) -> list[int]:
    return [len(one) for one in got if isinstance(one, np.ndarray)]


def test_waiting_chunks_are_merged_and_no_sample_is_lost_or_moved() -> None:
    pieces = [sound(first, MOST // 10) for first in range(0, MOST * 5 // 2, MOST // 10)]
    got = taken([*pieces, None])
    assert lengths(got) == [MOST, MOST, MOST // 2]
    whole = np.concatenate([one for one in got if isinstance(one, np.ndarray)])
    assert np.array_equal(whole, sound(0, MOST * 5 // 2))


def test_chunks_that_do_not_fit_stay_whole() -> None:
    most, half = MOST, MOST // 2
    given = [sound(0, size) for size in (half + 1, half, 3 * most, 10, most - 10, 1)]
    assert lengths(taken([*given, None])) == [half + 1, half, 3 * most, most, 1]


def test_words_and_clauses_keep_their_places() -> None:
    word, one, two = WordMark(0, 3, 0, 20), SpokenClause("one"), SpokenClause("two")
    got = taken([one, sound(0, 10), sound(10, 10), word, sound(20, 10), two, sound(30, 10), None])
    assert [kept for kept in got if not isinstance(kept, np.ndarray)] == [one, word, two]
    kinds = [type(kept) for kept in got]
    assert kinds == [SpokenClause, np.ndarray, WordMark, np.ndarray, SpokenClause, np.ndarray]
    assert lengths(got) == [20, 10, 10]


def test_a_chunk_is_returned_without_waiting_for_the_next() -> None:
    async def main() -> None:
        sounds: asyncio.Queue[SpeechOutput | None] = asyncio.Queue()
        got = merge_chunks(sounds, RATE_HZ)
        for first in range(3):
            sounds.put_nowait(sound(first, 10))
            piece = await anext(got)
            assert isinstance(piece, np.ndarray)
            assert np.array_equal(piece, sound(first, 10))
        sounds.put_nowait(None)
        assert [left async for left in got] == []

    run_virtual(main())


class ListenerTts(ToneTts):
    """Notes how much sound the listener still has when each clause is asked for, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s: list[float] = []

    async def speak(
        self, text: AsyncIterable[str], **options: Any
    ) -> AsyncGenerator[AudioFrame, None]:
        async def noted() -> AsyncIterator[str]:
            async for clause in text:
                self.ahead_s.append(SOUND_UNTIL_S.get() - asyncio.get_running_loop().time())
                yield clause

        async for frame in super().speak(noted(), **options):
            yield frame


def test_the_voice_can_read_until_when_the_listener_has_sound() -> None:
    tts = ListenerTts()

    async def clauses() -> AsyncGenerator[str, None]:
        yield "One."
        yield "Two."
        await asyncio.sleep(4)
        yield "Three."

    async def main() -> None:
        plan = SpeechPlan(tts, "en")
        for _ in range(2):  # the second speech begins anew
            assert [len(pcm) async for pcm in SpeechSynthesis(plan, clauses()).stream()]

    run_virtual(main())
    # A clause of one second is made in 0.1 s, and heard from its first piece after 0.01 s on.
    assert tts.ahead_s == pytest.approx(2 * [0.0, 0.91, 1.81 - 4], abs=0.001)


class WordTts:
    """A voice that speaks each word in 100 ms, at a level of its own."""

    def __init__(
        self, rate_hz: int, level: int, *, ends_with_pause: bool = True, lufs: float | None = None
    ) -> None:
        self.info = TtsInfo(
            "words",
            rate_hz,
            {"en": ("one",), "de": ("eins",)},
            ends_with_pause=ends_with_pause,
            loudness_lufs=lufs,
        )
        self.level = level
        self.asked: list[tuple[str, str | None, float, list[str]]] = []
        "Language, voice, speed and clauses of each request."

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        clauses: list[str] = []
        self.asked.append((language, voice, speed, clauses))
        index = words = 0
        samples = self.info.rate_hz // 10
        async for clause in text:
            clauses.append(clause)
            end = 0
            for word in clause.split():
                end = clause.index(word, end) + len(word)
                if on_word is not None:
                    on_word(WordMark(index, end, 100 * words, 100 * words + 100))
                pcm = np.full(samples, self.level, np.int16)
                yield AudioFrame(pcm, self.info.rate_hz, samples * words)
                words += 1
            index += 1


def spoken(plan: SpeechPlan, *steps: SpeechStep) -> tuple[Pcm, list[WordMark]]:
    """Returns sound and words of these steps."""
    parts, words = list[Pcm](), list[WordMark]()

    async def given() -> AsyncGenerator[SpeechStep, None]:
        for step in steps:
            yield step

    async def main() -> None:
        synthesis = SpeechSynthesis(plan, given(), has_words=True)
        async with aclosing(synthesis.stream()) as sounds:
            async for pcm in sounds:
                parts.append(pcm)
                words.extend(synthesis.take_words())
        words.extend(synthesis.take_words())

    run_virtual(main())
    return np.concatenate(parts), words


def test_a_pause_is_exact_silence_and_words_behind_it_keep_their_times() -> None:
    tts = WordTts(RATE_HZ, 1000)
    plan = SpeechPlan(tts, "en")
    pcm, words = spoken(plan, "**One** two.", Pause(750.25), "Three.")
    assert len(pcm) == RATE_HZ * 3 // 10 + round(RATE_HZ * 0.75025)
    assert np.flatnonzero(pcm == 0).tolist() == list(range(RATE_HZ // 5, len(pcm) - RATE_HZ // 10))
    assert words == [
        WordMark(0, 7, 0, 100),
        WordMark(0, 12, 100, 200),
        WordMark(1, 6, 950.25, 1050.25),
    ]
    assert [clauses for *_, clauses in tts.asked] == [["One two."], ["Three."]]


def test_a_pause_may_come_first_or_alone() -> None:
    plan = SpeechPlan(WordTts(RATE_HZ, 1000), "en")
    pcm, words = spoken(plan, Pause(100), "One.")
    assert (len(pcm), words) == (RATE_HZ // 5, [WordMark(0, 4, 100, 200)])
    pcm, words = spoken(plan, Pause(1000))
    assert (len(pcm), words) == (RATE_HZ, [])
    assert not pcm.any()


def test_another_voice_speaks_a_clause_at_the_rate_of_the_first() -> None:
    english, german = WordTts(RATE_HZ, 1000), WordTts(2 * RATE_HZ, 4000)
    plan = SpeechPlan(english, "en")
    other = SpeechPlan(german, "de", "eins", 0.5, volume=0.5)
    pcm, words = spoken(
        plan,
        "One.",
        "Two.",
        PlannedClause("Drei kg.", other),
        PlannedClause("Vier.", other),
        "5 kg.",
    )
    assert len(pcm) == RATE_HZ * 7 // 10
    assert [round(word.start_ms) for word in words] == [0, 100, 200, 300, 400, 500, 600]
    assert [word.chunk for word in words] == [0, 1, 2, 2, 3, 4, 4]
    middle = pcm[RATE_HZ // 4 : RATE_HZ * 45 // 100]
    assert np.abs(middle - 2000.0).max() < 5
    assert [clauses for *_, clauses in english.asked] == [["One.", "Two."], ["5 kilograms."]]
    assert german.asked == [("de", "eins", 0.5, ["Drei kg.", "Vier."])]


def test_a_voice_without_pauses_gets_those_of_its_punctuation() -> None:
    plan = SpeechPlan(WordTts(RATE_HZ, 1000, ends_with_pause=False), "en", speed=2)
    pcm, words = spoken(plan, "One,", "two.", "😀", "(Three?)", Pause(100), "Four")
    silences = (75, 150, 100)
    assert len(pcm) == RATE_HZ * (400 + sum(silences)) // 1000
    assert [word.start_ms for word in words] == [0, 175, 425, 625]
    assert not pcm[RATE_HZ // 10 : RATE_HZ * 175 // 1000].any()
    assert pcm[-1]


def test_a_second_voice_is_as_loud_as_the_first() -> None:
    quiet, loud = WordTts(RATE_HZ, 1000, lufs=-26), WordTts(RATE_HZ, 4000, lufs=-20)
    pcm, _ = spoken(SpeechPlan(quiet, "en"), "One.", PlannedClause("Zwei.", SpeechPlan(loud, "de")))
    assert pcm[0] == 1000
    assert abs(int(pcm[-1]) - 2005) < 2
