"""Scenarios that every pool of recognisers must pass, wherever its workers run."""

import asyncio

from engines.base import AsrItem, AsrOptions
from serving.asr.model import LoadedRecogniser
from serving.asr.scheduling import DecodePriority
from tests.engines.asr_contract import FIRST, SECOND, part

WORDS = ("turn on the kitchen lights", "what time is it")


async def words_of(pool: LoadedRecogniser, name: str, which: int = 0) -> str:
    pcm = (FIRST, SECOND)[which]
    item = AsrItem(name, pcm, is_final=True, options=AsrOptions("en"))
    return (await pool.submit(item, DecodePriority.FINAL)).text.lower()


async def utterances_at_once_keep_their_words(pool: LoadedRecogniser) -> None:
    for share in (0.3, 0.6):
        for name, pcm in (("utt_a", FIRST), ("utt_b", SECOND)):
            await pool.submit(part(name, pcm, share), DecodePriority.PARTIAL)
    async with asyncio.TaskGroup() as tasks:
        both = [tasks.create_task(words_of(pool, f"utt_{'ab'[i]}", i)) for i in range(2)]
    assert [task.result() for task in both] == [
        await words_of(pool, f"alone_{which}", which) for which in range(2)
    ]
    assert "kitchen" in both[0].result()
    assert "time" in both[1].result()


async def works_after_a_cancelled_utterance(pool: LoadedRecogniser) -> None:
    await pool.submit(part("utt_x", FIRST, 0.5), DecodePriority.PARTIAL)
    pool.forget("utt_x")
    async with asyncio.TaskGroup() as tasks:
        abandoned = tasks.create_task(words_of(pool, "utt_y"))
        await asyncio.sleep(0)
        abandoned.cancel()
    assert "time" in await words_of(pool, "utt_z", 1)
