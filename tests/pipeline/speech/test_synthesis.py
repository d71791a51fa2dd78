"""The merging of a voice's small chunks, and what a voice knows of its listener."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from typing import Any

import numpy as np
import pytest

from core.audio import AudioFrame, Pcm
from engines.base import WordMark
from engines.base.listener import SOUND_UNTIL_S
from pipeline.speech.synthesis import (
    GATHERED_MS,
    SpeechOutput,
    SpeechPlan,
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
