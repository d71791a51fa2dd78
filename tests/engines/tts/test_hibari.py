"""Hibari speaks with the voice of its package, gives word times, and refuses other languages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from core.audio import AudioFrame, Pcm
from core.errors import ConfigError, EngineMissing, RequestError
from engines.base import Tts, WordMark
from engines.registry import load
from engines.tts.shared.text import UNSPEAKABLE

pytestmark = pytest.mark.live

TEXT = "Hello there, Doctor Smith. Three words more."


@pytest.fixture(scope="module")
def tts() -> Tts:
    return load("tts", "hibari", {})


async def _text_chunks(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


def _speak(
    tts: Tts,
    *texts: str,
    language: str = "en",
    voice: str | None = None,
    speed: float = 1,
    marks: list[WordMark] | None = None,
) -> list[AudioFrame]:
    async def scenario() -> list[AudioFrame]:
        on_word = None if marks is None else marks.append
        speech = tts.speak(
            _text_chunks(*texts), language=language, voice=voice, speed=speed, on_word=on_word
        )
        async with asyncio.timeout(30), aclosing(speech) as frames:
            return [frame async for frame in frames]

    return asyncio.run(scenario())


def _pcm(frames: list[AudioFrame]) -> Pcm:
    return np.concatenate([frame.pcm for frame in frames])


def test_speech_is_loud_enough_and_reproducible(tts: Tts) -> None:
    frames = _speak(tts, TEXT)
    assert len(frames) == 2  # a sentence is passed on as soon as it is done
    assert [frame.start for frame in frames] == [0, len(frames[0].pcm)]
    pcm = _pcm(frames)
    assert 2.0 < len(pcm) / tts.info.rate_hz < 5.0
    assert 3_000 < np.abs(pcm).max() <= 32_767
    np.testing.assert_array_equal(pcm, _pcm(_speak(tts, TEXT)))


def test_the_gender_of_its_voice_is_known(tts: Tts) -> None:
    assert tts.info.voices["en"][0] == "heart"
    assert tts.info.genders["heart"] == "female"


def test_sound_begins_within_60_ms(tts: Tts) -> None:
    for frame in _speak(tts, TEXT):
        audible = np.flatnonzero(np.abs(frame.pcm) > 300)
        assert audible[0] < 0.06 * tts.info.rate_hz


def test_words_have_their_times(tts: Tts) -> None:
    assert tts.info.has_word_times
    marks: list[WordMark] = []
    total_ms = 1000 * _speak(tts, TEXT, "One two.", marks=marks)[-1].end / tts.info.rate_hz
    texts = [TEXT[: mark.end_char] for mark in marks if mark.chunk == 0]
    assert [text.rsplit(maxsplit=1)[-1] for text in texts] == TEXT.split()
    assert [mark.end_char for mark in marks if mark.chunk == 1] == [3, 8]
    assert all(0 <= mark.start_ms < mark.end_ms <= total_ms + 1 for mark in marks)
    assert all(one.end_ms <= two.start_ms + 1 for one, two in pairwise(marks))


def test_a_pause_in_the_sound_lies_between_the_words_around_it(tts: Tts) -> None:
    marks: list[WordMark] = []
    frames = _speak(tts, "Stop. Go.", marks=marks)
    stop, go = marks
    pause = _pcm(frames)[int(stop.end_ms * 24) : int(go.start_ms * 24)]
    word = _pcm(frames)[int(stop.start_ms * 24) : int(stop.end_ms * 24)]
    assert np.abs(pause).mean() < 0.25 * np.abs(word).mean()


def test_faster_speech_is_shorter(tts: Tts) -> None:
    assert _speak(tts, TEXT, speed=2)[-1].end < 0.7 * _speak(tts, TEXT)[-1].end
    assert _speak(tts, TEXT, speed=4)[-1].end == _speak(tts, TEXT, speed=2)[-1].end


def test_text_without_words_gives_no_audio(tts: Tts) -> None:
    assert _speak(tts, "...", "", " \n ") == []


@pytest.mark.parametrize(
    "text",
    [
        "Привет",
        "你好",
        "Καλημέρα",
        "Ich habe das Licht ausgeschaltet.",
        "La lumière du salon est allumée.",
        "Buenos días, ¿cómo está usted?",
    ],
)
def test_text_of_another_script_or_language_is_refused(tts: Tts, text: str) -> None:
    with pytest.raises(RequestError, match=r"hibari reads (Latin letters|English) only") as caught:
        _speak(tts, text)
    assert caught.value.code == UNSPEAKABLE
    assert _speak(tts, "hello")


@pytest.mark.parametrize(
    "text",
    [
        "Siobhan and Joaquin will arrive in Reykjavik on Tuesday.",
        "Playing Für Elise by Ludwig van Beethoven.",
        "Krzysztof Szczepanski, Gdańsk.",
        "IT IS 21 DEGREES, AND THE LAMPS ARE DIMMED.",
    ],
)
def test_english_with_foreign_names_is_spoken(tts: Tts, text: str) -> None:
    assert _speak(tts, text)


def test_an_unknown_language_or_voice_is_refused(tts: Tts) -> None:
    with pytest.raises(RequestError, match="does not speak 'de'; it speaks en"):
        _speak(tts, "Hallo", language="de")
    with pytest.raises(RequestError, match="has no voice 'emma'; for en it has heart"):
        _speak(tts, "hello", voice="emma")


def test_the_voice_works_after_a_cancelled_clause(tts: Tts) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(30):
            async with aclosing(tts.speak(_text_chunks("Anna. " * 2000), language="en")) as frames:
                await anext(frames)
            async with aclosing(tts.speak(_text_chunks("Otto."), language="en")) as frames:
                assert (await anext(frames)).start == 0

    asyncio.run(scenario())


def test_a_voice_with_a_missing_or_damaged_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match="no file"):
        load("tts", "hibari", {"models": [str(tmp_path / "bf_emma.int8.onnx")]})
    with pytest.raises(
        ConfigError, match=r"other\.onnx is not a voice of hibari; there are: af_kore"
    ):
        load("tts", "hibari", {"models": [str(tmp_path / "other.onnx")]})
    (tmp_path / "bf_emma.int8.onnx").write_bytes(b"damaged")
    with pytest.raises(EngineMissing, match=r"bf_emma.int8.onnx does not load"):
        load("tts", "hibari", {"models": [str(tmp_path / "bf_emma.int8.onnx")]})
