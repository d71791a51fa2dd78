"""An early decode whose utterance is over."""

import asyncio

import numpy as np
import pytest

from core.errors import EngineCrashed, EngineError, OverloadedError
from engines.base import AsrItem, AsrResult, Segment, Word
from pipeline.transcription.segment import SegmentDecode
from pipeline.transcription.stitching import without_lead
from serving.asr.scheduling import DecodePriority
from tests.loop import run_virtual
from tests.pipeline.fakes import LevelAsr


def test_an_early_decode_becomes_urgent_when_its_result_is_needed() -> None:
    asr = LevelAsr()

    async def main() -> None:
        item = AsrItem("said", np.full(320, 1000, np.int16), is_final=True)
        part = SegmentDecode(asr, item, 0)
        async with asyncio.TaskGroup() as tasks:
            part.begin(tasks, DecodePriority.SPECULATIVE)
            await asyncio.sleep(0)
            assert asr.hurried == []
            assert (await part.final(tasks)).text == "one"

    run_virtual(main())
    assert [utterance for _, utterance in asr.hurried] == ["said"]
    assert [priority for priority, _ in asr.decoded] == [DecodePriority.SPECULATIVE]


class Failing(LevelAsr):
    """A recogniser whose first call fails with the given error."""

    def __init__(self, error: EngineError | OverloadedError) -> None:
        super().__init__()
        self.error = error

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        result = await super().decode(item, priority)
        if len(self.decoded) == 1:
            raise self.error
        return result


@pytest.mark.parametrize("is_begun_early", [True, False])
def test_a_decode_that_crashed_a_worker_is_not_repeated(is_begun_early: bool) -> None:
    asr = Failing(EngineCrashed("asr", "level", "died"))

    async def main() -> None:
        part = SegmentDecode(asr, AsrItem("said", np.full(320, 1000, np.int16), is_final=True), 0)
        async with asyncio.TaskGroup() as tasks:
            if is_begun_early:
                part.begin(tasks, DecodePriority.SPECULATIVE)
            with pytest.raises(EngineCrashed):
                await part.final(tasks)

    run_virtual(main())
    assert len(asr.decoded) == 1


def test_a_refused_early_decode_is_repeated() -> None:
    asr = Failing(OverloadedError("busy", retry_after_s=1))

    async def main() -> None:
        part = SegmentDecode(asr, AsrItem("said", np.full(320, 1000, np.int16), is_final=True), 0)
        async with asyncio.TaskGroup() as tasks:
            part.begin(tasks, DecodePriority.SPECULATIVE)
            assert (await part.final(tasks)).text == "one"

    run_virtual(main())
    assert [priority for priority, _ in asr.decoded] == [
        DecodePriority.SPECULATIVE,
        DecodePriority.FINAL,
    ]


def test_silence_before_the_audio_does_not_count_in_its_times() -> None:
    heard = AsrResult(
        "one two",
        1.0,
        "en",
        words=(Word("one", 250, 420, 1), Word("two", 500, 900, 1)),
        segments=(Segment("one two", 250, 900),),
    )
    result = without_lead(heard, 300 * 16, 500 * 16)
    assert [(word.start_ms, word.end_ms) for word in result.words] == [(0, 120), (200, 500)]
    assert [(one.start_ms, one.end_ms) for one in result.segments] == [(0, 500)]
