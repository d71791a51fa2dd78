"""The engine with tiny random weights of GPT-2 and Mimi: its sound is that of the whole clip."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.audio import Pcm
from core.errors import EngineError
from engines.codec import mimi
from engines.registry import load
from engines.tts.indri.engine import IndriTts
from engines.tts.indri.frames import unpack
from tests.engines.tts.indri.checkpoint import write_checkpoints

TEXT = "Turn on the light in the kitchen."
MAX_IDS = 84


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_checkpoints(tmp_path_factory.mktemp("indri"))


@pytest.fixture(scope="module")
def tts(folders: dict[str, str]) -> IndriTts:
    options = {**folders, "slots": 2, "max_ids": MAX_IDS, "voices": ["spkr_53", "spkr_63"]}
    engine = load("tts", "indri", options)
    assert isinstance(engine, IndriTts)
    return engine


async def one(text: str) -> AsyncIterator[str]:
    yield text


async def speak(tts: IndriTts, text: str = TEXT, voice: str | None = None) -> Pcm:
    async with aclosing(tts.speak(one(text), language="en", voice=voice)) as frames:
        return np.concatenate([frame.pcm async for frame in frames])


def test_the_stream_equals_the_whole_clip(tts: IndriTts, folders: dict[str, str]) -> None:
    streamed = asyncio.run(speak(tts))
    request = tts.request(TEXT.lower(), "spkr_53")
    backend, ids, is_over = tts._batch._backend, list[int](), False
    backend.start(request)
    while not is_over:
        (new,) = backend.step().values()
        ids.append(new.id)
        is_over = new.is_last
    codec = mimi.create(mimi.Settings(model=folders["codec"]))
    (whole,) = codec.decode([unpack(ids, tts._layout)[None]])
    assert len(streamed) == len(whole) == len(ids) // 8 * 1920
    assert np.abs(streamed - np.clip(whole * 32_767, -32_768, 32_767)).max() < 1e-4 * 32_767 + 1


def test_voices_differ_and_repeat_themselves(tts: IndriTts) -> None:
    first, again, other = (
        asyncio.run(speak(tts, voice=voice)) for voice in ("spkr_53", None, "spkr_63")
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert tts.info.genders == {"spkr_53": "female", "spkr_63": "male"}


def test_speeches_at_once_sound_as_alone(tts: IndriTts) -> None:
    async def together() -> list[Pcm]:
        return await asyncio.gather(*(speak(tts, text) for text in texts))

    texts = ("good morning", TEXT, "what time is it")
    for text, pcm in zip(texts, asyncio.run(together()), strict=True):
        assert np.abs(pcm - asyncio.run(speak(tts, text)).astype(int)).max() <= 2


def test_an_interrupted_speech_frees_slot_and_stream(tts: IndriTts) -> None:
    async def scenario() -> None:
        for _ in range(2 * 2 + 1):  # more than there are slots
            frames = tts.speak(one(TEXT), language="en")
            assert len((await anext(frames)).pcm)
            await frames.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        ("config.json", {"vocab_size": 16_000}, "has the id"),
        ("config.json", {"activation_function": "relu"}, "allowed: 'gelu_new'"),
    ],
)
def test_a_checkpoint_of_another_form_is_refused(
    tmp_path: Path, file: str, change: dict[str, Any], problem: str
) -> None:
    folders = write_checkpoints(tmp_path)
    path = Path(folders["path"]) / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}), encoding="utf-8")
    with pytest.raises(EngineError, match=problem):
        load("tts", "indri", folders)


def test_a_codec_of_another_form_is_refused(tmp_path: Path) -> None:
    folders = write_checkpoints(tmp_path, codebook_size=64)
    with pytest.raises(EngineError, match=r"has 64 codes in .* codebooks, not 2048 codes in 8"):
        load("tts", "indri", folders)
