"""The engine in its worker process: sound, times of the stages as metrics, and an interruption."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest

from core.audio import Pcm
from engines.base import TtsInfo
from engines.registry import worker_profile
from serving.workers.engine_process import engine_process
from serving.workers.process_tts import ProcessTts
from tests.engines.tts.bark.checkpoint import write_checkpoint
from tests.pipeline.fakes import Counts

pytestmark = pytest.mark.live

LIMIT_S = 240
TEXTS = ("good night", "what?", "it is nine")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("bark"))


def with_worker(folder: Path, scenario: Callable[[ProcessTts], Awaitable[None]]) -> Counts:
    metrics = Counts()

    async def main() -> None:
        options = {"path": str(folder), "semantic": {"batch": 2, "workers": 2}}
        profile = worker_profile("tts", "bark", options)
        assert profile is not None
        process = engine_process("tts", "bark", options, TtsInfo, metrics, profile)
        async with asyncio.timeout(LIMIT_S), process.running():
            await scenario(ProcessTts(process, await process.ready(), metrics))

    asyncio.run(main())
    return metrics


async def one(text: str) -> AsyncIterator[str]:
    yield text


async def speak(tts: ProcessTts, text: str, voice: str = "v2_en_speaker_6") -> Pcm:
    async with aclosing(tts.speak(one(text), language="en", voice=voice)) as frames:
        return np.concatenate([frame.pcm async for frame in frames])


def test_clauses_are_spoken_and_their_stages_measured(folder: Path) -> None:
    async def scenario(tts: ProcessTts) -> None:
        together = await asyncio.gather(*(speak(tts, text) for text in TEXTS))
        assert [len(pcm) % 320 for pcm in together] == [0] * len(TEXTS)
        again = await speak(tts, TEXTS[0])
        assert np.abs(together[0].astype(int) - again).max() <= 2
        assert not np.array_equal(again, await speak(tts, TEXTS[0], "en_speaker_0"))

    metrics = with_worker(folder, scenario)
    for stage in ("semantic", "coarse", "fine", "codec"):
        for name in ("queue_seconds", "compute_seconds", "batch_size"):
            assert len(metrics.labelled[f"earshot_tts_stage_{name}:{stage}"]) == len(TEXTS) + 2
        assert min(metrics.labelled[f"earshot_tts_stage_batch_size:{stage}"]) >= 1


def test_an_interrupted_clause_leaves_room_for_the_next(folder: Path) -> None:
    async def scenario(tts: ProcessTts) -> None:
        many = [asyncio.create_task(speak(tts, TEXTS[2])) for _ in range(20)]
        await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)
        for task in many:
            task.cancel()
        await asyncio.wait(many)
        assert sum(task.cancelled() for task in many) > 8, "more than there are slots"
        assert len(await speak(tts, TEXTS[0]))

    with_worker(folder, scenario)
