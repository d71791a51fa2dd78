"""The tail of a sentence, which may arrive late, not at all, or not fit."""

import asyncio

import numpy as np
import pytest

from core.audio import AudioFrame
from devices.willow.wis.rtc.recording import TAIL_GAP_S, RtcRecording
from tests.loop import run_virtual

FRAME_MS = 20


def frame() -> AudioFrame:
    return AudioFrame(np.ones(16 * FRAME_MS, np.int16), 16_000, 0)


@pytest.mark.parametrize(
    ("frames", "max_audio_s", "whole", "waited_s", "heard_ms"),
    [
        (100, 60.0, True, 0.12, 120),
        (0, 60.0, False, TAIL_GAP_S, 0),
        (3, 60.0, False, 0.06 + TAIL_GAP_S, 60),
        (100, 0.1, True, 0.12, 100),
    ],
    ids=["comes", "microphone away already", "microphone away soon", "does not fit"],
)
def test_the_tail_of_a_sentence_ends(
    frames: int, max_audio_s: float, whole: bool, waited_s: float, heard_ms: int
) -> None:
    async def main() -> None:
        take = RtcRecording(max_audio_s)
        loop = asyncio.get_running_loop()

        async def speak() -> None:
            for _ in range(frames):
                await asyncio.sleep(FRAME_MS / 1000)
                take.add(frame())

        async with asyncio.TaskGroup() as tasks:
            speaking = tasks.create_task(speak())
            began = loop.time()
            assert await take.tail() == whole
            assert loop.time() - began == pytest.approx(waited_s)
            take.close()
            speaking.cancel()
        pieces = [pcm async for pcm in take.pieces()]
        assert sum(map(len, pieces)) == 16 * heard_ms
        assert take.is_full == (max_audio_s < 1)

    run_virtual(main())


def test_packets_delayed_by_wi_fi_are_awaited() -> None:
    """The client goes on sending; the tail arrives in two bursts, 70 ms apart."""

    async def main() -> None:
        take = RtcRecording(60.0)

        async def speak() -> None:
            for _ in range(2):
                await asyncio.sleep(0.07)
                for _ in range(3):
                    take.add(frame())

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(speak())
            assert await take.tail()
        take.close()
        assert sum([len(pcm) async for pcm in take.pieces()]) == 16 * 120

    run_virtual(main())
