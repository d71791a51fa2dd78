"""Response latency at playout, for any system, and the table of several systems."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import numpy as np
import pytest

from bench.client.latency_probe import AudioReceiver
from bench.client.microphone import RATE_HZ, Microphone
from bench.peers.voice import call
from bench.peers.voice.__main__ import VoiceRounds, table
from bench.peers.voice.call import VoiceCall
from bench.tools.utterance_audio import BenchUtterance, make_utterance
from core.audio import PTIME_MS, AudioFrame, silence
from tests.loop import run_virtual
from tests.media.signals import tone


def beep_utterance() -> BenchUtterance:
    """Returns an utterance whose speech ends after half a second."""
    quiet = silence(200, RATE_HZ)
    return make_utterance(
        "beep", np.concatenate([quiet, tone(440, 3 * RATE_HZ // 10, RATE_HZ), quiet])
    )


@asynccontextmanager
async def pulled(microphone: Microphone) -> AsyncGenerator[None, None]:
    """Pulls a frame every 20 ms, as a microphone does."""

    async def pull() -> None:
        while True:
            await asyncio.sleep(PTIME_MS / 1000)
            microphone.pull()

    task = asyncio.get_running_loop().create_task(pull())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(("answers_at_s", "expected_ms"), [(0.8, 300), (0.3, -200)])
def test_an_answer_is_timed_from_the_last_sample_of_speech(
    answers_at_s: float, expected_ms: float
) -> None:
    async def run() -> None:
        clock = asyncio.get_running_loop().time
        microphone, line = Microphone(clock), VoiceCall(AudioReceiver(is_paced=True))

        async def answer() -> None:
            await asyncio.sleep(answers_at_s)
            quiet = silence(PTIME_MS, RATE_HZ)
            line.hear(AudioFrame(quiet, RATE_HZ, 0), clock())
            line.hear(AudioFrame(np.full(480, 8000, np.int16), RATE_HZ, 480), clock())

        async with pulled(microphone), asyncio.TaskGroup() as tasks:
            tasks.create_task(answer())
            took_ms = await line.say(microphone, beep_utterance())
        assert took_ms == pytest.approx(expected_ms, abs=25)

    run_virtual(run())


def test_the_wait_for_an_answer_is_limited() -> None:
    async def run() -> None:
        clock = asyncio.get_running_loop().time
        microphone, line = Microphone(clock), VoiceCall(AudioReceiver(is_paced=True))
        async with pulled(microphone):
            assert await line.say(microphone, beep_utterance()) is None
        assert clock() < call.ANSWER_TIMEOUT_S + 3

    run_virtual(run())


def test_the_table_counts_missing_and_premature_answers() -> None:
    one, other = VoiceRounds(), VoiceRounds(problem="not installed")
    one.add([400.0, 420.0, None])
    one.add([500.0, -120.0, 520.0])
    rows = table({"one": one, "other": other}).splitlines()
    assert rows[2] == "| one | 460 (410 to 510) | 517 | 4 of 6 | 1 |"
    assert rows[3] == "| other (not installed) | - | - | 0 of 0 | 0 |"
