"""The engine with tiny random weights of Pocket TTS, in the real library."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from core.audio import AudioFrame
from core.errors import EngineError, EngineMissing, RequestError
from engines.registry import load, worker_profile
from engines.tts.pocket import PocketTts
from tests.engines.tts.pocket.checkpoint import STOCK_VOICE, recording, write_checkpoint

pytestmark = pytest.mark.skipif(find_spec("pocket_tts") is None, reason="needs the extra pocket")

TEXT = "Turn on the light."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("models") / "english")


@pytest.fixture(scope="module")
def tts(folder: Path) -> PocketTts:
    engine = load("tts", "pocket", {"path": str(folder), "held_voices": 2})
    assert isinstance(engine, PocketTts)
    return engine


async def _text(text: str) -> AsyncIterator[str]:
    yield text


async def frames_of(tts: PocketTts, voice: str | None, text: str = TEXT) -> list[AudioFrame]:
    async with aclosing(tts.speak(_text(text), language="en", voice=voice)) as frames:
        return [frame async for frame in frames]


def test_it_speaks_in_its_own_voice_and_in_that_of_a_recording(tts: PocketTts) -> None:
    async def scene() -> None:
        condition = await tts.voice_condition(recording(seed=1))
        with pytest.raises(RequestError, match="no voice 'voice_1'"):
            await frames_of(tts, "voice_1")
        tts.hold_voice("voice_1", condition)
        for voice in (None, STOCK_VOICE, "voice_1"):
            frames = await frames_of(tts, voice)
            assert len(frames) > 1
            starts = np.cumsum([0, *(len(frame.pcm) for frame in frames)])
            assert [frame.start for frame in frames] == starts[:-1].tolist()
        tts.forget_voice("voice_1")
        with pytest.raises(RequestError, match="no voice 'voice_1'"):
            await frames_of(tts, "voice_1")

    asyncio.run(scene())


def test_the_least_used_voice_is_dropped(tts: PocketTts) -> None:
    async def scene() -> None:
        condition = await tts.voice_condition(recording(seed=1))
        for voice in ("voice_1", "voice_2"):
            tts.hold_voice(voice, condition)
        await frames_of(tts, "voice_1", "Yes.")
        tts.hold_voice("voice_3", condition)
        with pytest.raises(RequestError, match="no voice 'voice_2'"):
            await frames_of(tts, "voice_2")
        await frames_of(tts, "voice_1", "Yes.")

    asyncio.run(scene())


def test_a_condition_of_other_weights_or_a_damaged_one_is_refused(
    tts: PocketTts, tmp_path: Path
) -> None:
    other = load("tts", "pocket", {"path": str(write_checkpoint(tmp_path / "english", seed=1))})
    assert isinstance(other, PocketTts)
    condition = asyncio.run(other.voice_condition(recording()))
    with pytest.raises(EngineError, match="other weights"):
        tts.hold_voice("voice_1", condition)
    with pytest.raises(EngineError, match="damaged"):
        other.hold_voice("voice_1", condition[:100])


def test_a_speech_that_is_closed_ends_with_the_next_frame(tts: PocketTts) -> None:
    async def scene() -> None:
        begun = 0
        async with aclosing(tts.speak(_text(TEXT * 3), language="en")) as frames:
            async for _ in frames:
                begun = time.perf_counter_ns()
                break
        await frames_of(tts, None, "Yes.")  # the only thread is free again
        assert (time.perf_counter_ns() - begun) / 1e9 < 5

    asyncio.run(scene())


def test_missing_files_and_an_unknown_language_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match=r"no model\.safetensors"):
        load("tts", "pocket", {"path": str(tmp_path)})
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(EngineMissing, match=r"no model 'klingon' of: .*english"):
        load("tts", "pocket", {"path": str(tmp_path), "model": "klingon"})
    with pytest.raises(EngineMissing, match=r"no tokenizer\.json"):
        load("tts", "pocket", {"path": str(tmp_path), "model": "english"})
    assert worker_profile("tts", "pocket", {"path": str(folder)}) is not None
