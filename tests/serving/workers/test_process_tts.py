"""A voice in a worker process: it speaks like one in the gateway, is cancelled and restarted."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.audio import AudioFrame, Pcm
from core.errors import (
    ConfigError,
    EngineCrashed,
    EngineError,
    EngineMissing,
    EngineTimeout,
    OverloadedError,
    PayloadTooLarge,
    RequestError,
)
from engines.base import Tts, TtsInfo, WordMark
from engines.base.voice import SOUND_UNTIL_S
from engines.registry import load, worker_profile
from engines.runtime.worker.hosts import CHUNK_MS
from serving.workers.engine_process import EngineProcess, engine_process
from serving.workers.process_tts import ProcessTts
from tests.conftest import require
from tests.engines.tts.tiny_voices import have_kokoro, have_piper, kokoro_files, piper_voice
from tests.pipeline.fakes import Counts
from tests.serving.workers.odd_voice import RATE_HZ, SENTENCE, WORD_SAMPLES

pytestmark = pytest.mark.live

ODD = "tests.serving.workers.odd_voice"
LIMIT_S = 60

Scenario = Callable[[ProcessTts, EngineProcess[TtsInfo]], Awaitable[None]]


def with_voice(scenario: Scenario, name: str = ODD, **options: Any) -> Counts:
    metrics = Counts()

    async def main() -> None:
        profile = worker_profile("tts", name, options)
        assert profile is not None
        process = engine_process("tts", name, options, TtsInfo, metrics, profile)
        async with asyncio.timeout(LIMIT_S), process.running():
            await scenario(ProcessTts(process, await process.ready(), metrics), process)

    asyncio.run(main())
    return metrics


async def given(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


async def spoken(
    tts: Tts, *texts: str, marks: list[WordMark] | None = None, **wishes: Any
) -> list[AudioFrame]:
    on_word = None if marks is None else marks.append
    speech = tts.speak(given(*texts), language="en", on_word=on_word, **wishes)
    async with aclosing(speech) as frames:
        return [frame async for frame in frames]


def _sound(frames: list[AudioFrame]) -> Pcm:
    return np.concatenate([frame.pcm for frame in frames])


def test_times_of_stages_become_metrics_of_the_gateway() -> None:
    async def scenario(tts: ProcessTts, process: EngineProcess[TtsInfo]) -> None:
        await spoken(tts, "staged", "staged", SENTENCE)

    metrics = with_voice(scenario)
    assert metrics.labelled["earshot_tts_stage_queue_seconds:coarse"] == [0.1, 0.1]
    assert metrics.labelled["earshot_tts_stage_compute_seconds:coarse"] == [0.2, 0.2]
    assert metrics.labelled["earshot_tts_stage_batch_size:coarse"] == [1.5, 1.5]


def test_positions_count_on_through_clauses_and_chunks() -> None:
    async def scenario(tts: ProcessTts, process: EngineProcess[TtsInfo]) -> None:
        long = f"{SENTENCE}. " * 20  # two clauses
        marks: list[WordMark] = []
        frames = await spoken(tts, SENTENCE, long, marks=marks)
        assert all(before.end == after.start for before, after in pairwise(frames))
        assert [frame.pcm[0] for frame in frames[:4]] == [4, 2, 3, 5]
        assert len(frames) == len(marks) == 4 + 80
        assert [mark.start_ms for mark in marks] == [100 * n for n in range(84)]
        assert [SENTENCE[: mark.end_char].split()[-1] for mark in marks[:4]] == SENTENCE.split()
        words = [long[: mark.end_char].rsplit(maxsplit=1)[-1] for mark in marks if mark.chunk == 1]
        assert words == long.split()
        assert len(await spoken(tts, SENTENCE)) == 4

    with_voice(scenario)


def test_long_audio_is_sent_in_chunks() -> None:
    async def scenario(tts: ProcessTts, process: EngineProcess[TtsInfo]) -> None:
        frames = await spoken(tts, "long")
        assert frames[-1].end == 3 * RATE_HZ
        assert max(len(frame.pcm) for frame in frames) == RATE_HZ * CHUNK_MS // 1000

    with_voice(scenario)


def test_an_abandoned_clause_is_cancelled_in_the_process() -> None:
    async def scenario(tts: ProcessTts, process: EngineProcess[TtsInfo]) -> None:
        for _ in range(3):
            async with aclosing(tts.speak(given("endless"), language="en")) as frames:
                await anext(frames)
        (count,) = await spoken(tts, "how many were cancelled")
        assert count.pcm[0] == 3
        assert not process._pending

    with_voice(scenario)


def test_the_process_knows_until_when_the_listener_has_sound() -> None:
    found: list[int] = []

    async def scenario(voice: ProcessTts, _: EngineProcess[TtsInfo]) -> None:
        for ahead_s in (20.0, -10.0):
            SOUND_UNTIL_S.set(asyncio.get_running_loop().time() + ahead_s)
            (frame,) = await spoken(voice, "how many ms of sound are ahead")
            found.append(int(frame.pcm[0]))

    with_voice(scenario)
    late_ms = [told - real for told, real in zip(found, (20_000, -10_000), strict=True)]
    assert all(-5000 < each <= 0 for each in late_ms), found


def test_clauses_of_several_sessions_do_not_wait_for_each_other() -> None:
    async def scenario(tts: ProcessTts, process: EngineProcess[TtsInfo]) -> None:
        async with aclosing(tts.speak(given("endless"), language="en")) as endless:
            await anext(endless)
            async with asyncio.TaskGroup() as tasks:
                others = [tasks.create_task(spoken(tts, SENTENCE)) for _ in range(5)]
        assert [len(other.result()) for other in others] == [4] * 5

    with_voice(scenario)


def test_a_killed_voice_loses_its_clauses_and_speaks_again() -> None:
    async def scenario(tts: ProcessTts, process: EngineProcess[TtsInfo]) -> None:
        first_pid = process.pid
        assert first_pid is not None
        async with aclosing(tts.speak(given("endless"), language="en")) as frames:
            await anext(frames)
            os.kill(first_pid, signal.SIGKILL)
            with pytest.raises(EngineCrashed, match="its worker process died"):
                await anext(frames)
        assert len(await spoken(tts, SENTENCE)) == 4
        assert process.pid not in (None, first_pid)

    assert with_voice(scenario).counts["earshot_worker_restarts"] == 1


def test_a_voice_that_hangs_is_killed_and_speaks_again() -> None:
    async def scenario(tts: ProcessTts, process: EngineProcess[TtsInfo]) -> None:
        with pytest.raises(EngineTimeout, match=r"no answer in 0\.5 s"):
            await spoken(tts, "hang")
        assert len(await spoken(tts, SENTENCE)) == 4

    assert with_voice(scenario, patience_s=0.5).counts["earshot_worker_restarts"] == 1


def test_errors_keep_their_class_and_fail_one_clause(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(tts: ProcessTts, process: EngineProcess[TtsInfo]) -> None:
        with pytest.raises(EngineError, match=r"odd: ZeroDivisionError$"):
            await spoken(tts, "fail")
        with pytest.raises(OverloadedError, match="no room") as full:
            await spoken(tts, "full")
        assert (full.value.retry_after_s, full.value.code) == (7, "engine_busy")
        with pytest.raises(RequestError, match="no voice 'eve'; for en it has ann, bob"):
            await spoken(tts, SENTENCE, voice="eve")
        with pytest.raises(RequestError, match="speed"):
            await spoken(tts, SENTENCE, speed=9)
        with pytest.raises(PayloadTooLarge):
            await spoken(tts, "a " * 20_000)
        assert len(await spoken(tts, SENTENCE, voice="bob")) == 4

    with_voice(scenario)
    assert "quotes the text" not in caplog.text


@pytest.mark.parametrize(
    ("name", "options", "kind", "message"),
    [
        (ODD, {"has_files": False}, ConfigError, "two voices, two rates"),
        ("piper", {}, EngineMissing, "piper"),
        ("kokoro", {"model": "/nowhere"}, EngineMissing, "kokoro"),
    ],
)
def test_a_voice_that_does_not_load_gives_the_reason(
    name: str, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    async def scenario(tts: ProcessTts, process: EngineProcess[TtsInfo]) -> None:
        raise AssertionError("it has loaded")

    with pytest.raises(kind, match=message):
        with_voice(scenario, name, **options)


@pytest.mark.parametrize("name", ["piper", "kokoro"])
def test_a_neural_voice_speaks_the_same_samples_as_in_the_gateway(
    name: str, tmp_path: Path
) -> None:
    if name == "piper":
        require(have_piper(), "piper-tts and onnx are not installed")
        options = {"model": str(piper_voice(tmp_path))}
    else:
        require(have_kokoro(), "kokoro-onnx and onnx are not installed")
        model, voices = kokoro_files(tmp_path)
        options = {"model": str(model), "voices": str(voices)}
    texts = "Hello there, Doctor Smith. Three words more.", "One two."
    marks: list[WordMark] = []
    here = asyncio.run(spoken(load("tts", name, options), *texts, marks=marks))

    async def scenario(tts: ProcessTts, process: EngineProcess[TtsInfo]) -> None:
        remote_marks: list[WordMark] = []
        there = await spoken(tts, *texts, marks=remote_marks)
        assert remote_marks == marks
        assert there[-1].end == here[-1].end > WORD_SAMPLES
        assert np.array_equal(_sound(there), _sound(here))

    with_voice(scenario, name, **options)


def test_a_voice_of_a_recording_is_sent_to_the_worker_once_and_again_after_a_restart() -> None:
    asked = list[str]()

    async def scenario(tts: ProcessTts, process: EngineProcess[TtsInfo]) -> None:
        made = await tts.voice_condition(np.array([7, 5], np.int16))
        assert made == b"7"

        async def condition() -> bytes:
            asked.append("condition")
            return made

        async def first_sample(text: str) -> int:
            speech = tts.speak_clause(text, language="en", voice="voice_1", condition=condition)
            async with aclosing(speech) as frames:
                return int((await anext(frames)).pcm[0])

        assert [await first_sample("whose voice") for _ in range(3)] == [7, 7, 7]
        assert len(asked) == 1
        async with aclosing(tts.speak(given("endless"), language="en")) as frames:
            await anext(frames)
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            with pytest.raises(EngineCrashed):
                await anext(frames)
        assert await first_sample("whose voice") == 7
        assert len(asked) == 2
        tts.forget_voice("voice_1")
        (frame,) = await spoken(tts, "how many voices", voice="ann")
        assert frame.pcm[0] == 0

    with_voice(scenario)
