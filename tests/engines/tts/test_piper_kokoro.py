"""Neural voices with their real libraries; only the weights are random."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import pytest

from core.audio import AudioFrame
from core.errors import ConfigError, EngineError, EngineMissing, RequestError
from engines.base import Tts, WordMark
from engines.registry import load
from tests.conftest import require
from tests.engines.tts.tiny_voices import have_kokoro, have_piper, kokoro_files, piper_voice

pytestmark = pytest.mark.live

TEXT = "Hello there, Doctor Smith. Three words more."


@pytest.fixture
def piper() -> None:
    require(have_piper(), "piper-tts and onnx are not installed")


@pytest.fixture
def kokoro() -> None:
    require(have_kokoro(), "kokoro-onnx and onnx are not installed")


@pytest.fixture(params=["piper", "kokoro"])
def tts(request: pytest.FixtureRequest, tmp_path: Path) -> Tts:
    request.getfixturevalue(request.param)
    if request.param == "piper":
        return load("tts", "piper", {"model": str(piper_voice(tmp_path))})
    model, voices = kokoro_files(tmp_path)
    return load("tts", "kokoro", {"model": str(model), "voices": str(voices)})


async def text_chunks(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


def speak(
    tts: Tts,
    *texts: str,
    voice: str | None = None,
    speed: float = 1,
    marks: list[WordMark] | None = None,
) -> list[AudioFrame]:
    async def scenario() -> list[AudioFrame]:
        on_word = None if marks is None else marks.append
        speech = tts.speak(
            text_chunks(*texts), language="en", voice=voice, speed=speed, on_word=on_word
        )
        async with asyncio.timeout(30), aclosing(speech) as frames:
            return [frame async for frame in frames]

    return asyncio.run(scenario())


def test_words_have_their_times(tts: Tts) -> None:
    assert tts.info.has_word_times
    marks: list[WordMark] = []
    total_ms = 1000 * speak(tts, TEXT, "One two.", marks=marks)[-1].end / tts.info.rate_hz
    texts = [TEXT[: mark.end_char] for mark in marks if mark.chunk == 0]
    assert [text.rsplit(maxsplit=1)[-1] for text in texts] == TEXT.split()
    assert [mark.end_char for mark in marks if mark.chunk == 1] == [3, 8]
    assert all(0 <= mark.start_ms < mark.end_ms <= total_ms + 1 for mark in marks)
    assert all(one.end_ms <= two.start_ms + 1 for one, two in pairwise(marks))
    assert marks[-1].end_ms > 0.8 * total_ms


def test_faster_speech_is_shorter(tts: Tts) -> None:
    assert speak(tts, TEXT, speed=2)[-1].end < 0.8 * speak(tts, TEXT)[-1].end


def test_text_of_another_script_does_not_fail(tts: Tts) -> None:
    speak(tts, "你好", "hello")


def test_the_voice_works_after_a_cancelled_clause(tts: Tts) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(30):
            async with aclosing(tts.speak(text_chunks("Anna. " * 2000), language="en")) as frames:
                await anext(frames)
            async with aclosing(tts.speak(text_chunks("Otto."), language="en")) as frames:
                assert (await anext(frames)).start == 0

    asyncio.run(scenario())


@pytest.mark.usefixtures("piper")
def test_piper_streams_sentence_by_sentence(tmp_path: Path) -> None:
    tts = load("tts", "piper", {"model": str(piper_voice(tmp_path, with_times=False))})
    assert len(speak(tts, "One sentence. Two sentences. Three.")) == 3


@pytest.mark.usefixtures("piper")
def test_piper_voices_are_files_and_speakers(tmp_path: Path) -> None:
    piper_voice(tmp_path, "en_GB-many-low", speakers=("ann", "bob"))
    piper_voice(tmp_path, "de_DE-one-low")
    info = load("tts", "piper", {"model": str(tmp_path)}).info
    assert info.voices == {
        "de": ("de_DE-one-low",),
        "en": ("en_GB-many-low/ann", "en_GB-many-low/bob"),
    }
    piper_voice(tmp_path, "fr_FR-odd-low", rate_hz=16_000)
    with pytest.raises(ConfigError, match=r"fr_FR-odd-low\.onnx has 16000 Hz"):
        load("tts", "piper", {"model": str(tmp_path)})


@pytest.mark.usefixtures("piper")
def test_errors_of_piper_name_what_is_missing_or_broken(tmp_path: Path) -> None:
    def fails(match: str, **options: object) -> None:
        with pytest.raises(EngineMissing, match=match):
            load("tts", "piper", options)

    fails("no voice: set model")
    fails("no .onnx file in", model=str(tmp_path))
    fails("no file .*gone.onnx", model=str(tmp_path / "gone.onnx"))
    path = piper_voice(tmp_path)
    path.write_bytes(b"no model")
    fails("does not load", model=str(path))
    Path(f"{path}.json").write_text("{", encoding="utf-8")
    fails("cannot be read", model=str(path))
    Path(f"{path}.json").write_text("{}", encoding="utf-8")
    path = piper_voice(tmp_path)
    Path(f"{path}.json").write_text("{}", encoding="utf-8")
    fails("lacks an entry or has a wrong one: 'num_symbols'", model=str(path))


@pytest.mark.usefixtures("kokoro")
def test_kokoro_voices_are_listed_by_language(tmp_path: Path) -> None:
    model, voices = kokoro_files(tmp_path, with_times=False)
    tts = load("tts", "kokoro", {"model": str(model), "voices": str(voices)})
    assert tts.info.voices == {"en": ("af_heart", "bf_emma"), "fr": ("ff_siwis",)}
    assert not tts.info.has_word_times
    assert speak(tts, "hello", voice="bf_emma")
    with pytest.raises(RequestError, match="no voice 'zf_xiaobei'; for en it has af_heart"):
        speak(tts, "hello", voice="zf_xiaobei")


@pytest.mark.usefixtures("kokoro")
def test_errors_of_kokoro_name_what_is_missing_or_broken(tmp_path: Path) -> None:
    model, voices = kokoro_files(tmp_path)
    for options, match in [
        ({}, "set model to its file"),
        ({"model": str(model)}, "set voices to its file"),
        ({"model": "/nowhere", "voices": str(voices)}, "no file /nowhere"),
        ({"model": str(voices), "voices": str(voices)}, "does not load"),
    ]:
        with pytest.raises(EngineError, match=match):
            load("tts", "kokoro", options)
