"""The merging of a voice's small chunks, in virtual time."""

import asyncio

import numpy as np

from core.audio import Pcm
from engines.base import WordMark
from pipeline.speech.synthesis import GATHERED_MS, SpeechOutput, SpokenClause, merge_chunks
from tests.loop import run_virtual

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
