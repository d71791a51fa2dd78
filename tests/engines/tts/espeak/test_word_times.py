"""eSpeak's voices give the time of each word of the caller's text."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from itertools import pairwise

import numpy as np
import pytest

from core.audio import Pcm
from engines.base import WordMark
from engines.tts.espeak import Settings, create
from engines.tts.espeak.word_times import ClauseWords, EspeakEvent
from engines.tts.shared.synthesis_thread import SpeechChunk

pytestmark = pytest.mark.live

RATE_HZ = 1000
"One sample is one millisecond."


async def text_chunks(texts: Sequence[str]) -> AsyncIterator[str]:
    for text in texts:
        yield text


def spoken(
    *texts: str, language: str = "en", speed: float = 1
) -> tuple[list[WordMark], Pcm, list[tuple[WordMark, int]]]:
    """Returns marks, the whole sound, and each mark with the number of samples given before it."""
    tts = create(Settings())
    marks: list[tuple[WordMark, int]] = []
    frames: list[Pcm] = []

    async def scenario() -> None:
        def on_word(mark: WordMark) -> None:
            marks.append((mark, sum(map(len, frames))))

        speech = tts.speak(text_chunks(texts), language=language, speed=speed, on_word=on_word)
        async with aclosing(speech):
            async for frame in speech:
                frames.append(frame.pcm)  # noqa: PERF401 - `on_word` reads it meanwhile

    asyncio.run(scenario())
    return [mark for mark, _ in marks], np.concatenate(frames), marks


def words(texts: Sequence[str], marks: Sequence[WordMark]) -> list[str]:
    """Returns the text that each mark adds to the one before it."""
    out, before = [], (0, 0)
    for mark in marks:
        start = before[1] if mark.chunk == before[0] else 0
        out.append(texts[mark.chunk][start : mark.end_char].strip())
        before = (mark.chunk, mark.end_char)
    return out


@pytest.mark.parametrize(
    ("language", "texts"),
    [
        ("en", ["Hello there, Dr. Smith. It is 3.5 degrees!", "Isn't it 1,234,567 well-known?"]),
        ("de", ["Grüße aus\x01München am 3. Mai, z. B. um 10:30 Uhr.", "Bis bald."]),
        ("fr", ["Il est huit heures. La lumière est allumée !"]),
        ("es", ["Hace 21 grados; la luz está encendida."]),
        ("ko", ["안녕하세요 여러분. 오늘은 날씨가 좋습니다."]),
        ("en", ["  word " * 100]),
    ],
)
def test_every_word_has_its_time_in_order(language: str, texts: list[str]) -> None:
    marks, pcm, marks_with_samples = spoken(*texts, language=language)
    expected = [word for text in texts for word in text.replace("\x01", " ").split()]
    found = " ".join(words(texts, marks)).replace("\x01", " ")
    assert found.split() == expected
    assert len(marks) >= len(expected) - 2  # `z. B.` and ` !` may be joined with the word before
    total_ms = 1000 * len(pcm) / 22_050
    assert all(0 <= mark.start_ms <= mark.end_ms <= total_ms for mark in marks)
    assert all(one.end_ms <= two.start_ms + 1 for one, two in pairwise(marks))
    assert all(mark.end_ms >= 1000 * out / 22_050 for mark, out in marks_with_samples)


def test_the_last_word_ends_with_the_sound() -> None:
    marks, pcm, _ = spoken("Turn off the lamp. Good night.")
    loud_ms = 1000 * np.flatnonzero(np.abs(pcm) > 100)[-1] / 22_050
    assert marks[-1].end_ms == pytest.approx(loud_ms, abs=2)
    assert 0 < 1000 * len(pcm) / 22_050 - marks[-1].end_ms < 600


def test_a_word_before_a_pause_ends_where_the_pause_begins() -> None:
    marks, pcm, _ = spoken("Hello, world.")
    hello, world = marks
    pause = pcm[int(hello.end_ms * 22.05) + 1 : int(world.start_ms * 22.05)]
    assert len(pause) > 22 * 100
    assert np.abs(pause).max() <= 100


def test_times_follow_the_speed() -> None:
    slow, fast = spoken("one two three four")[0], spoken("one two three four", speed=2)[0]
    assert fast[-1].start_ms < 0.7 * slow[-1].start_ms


def test_text_without_sound_has_no_words() -> None:
    marks, _, _ = spoken("...", "Anna.", " — ", "Otto.")
    assert [(mark.chunk, mark.end_char) for mark in marks] == [(1, 5), (3, 5)]


def test_chinese_words_are_characters() -> None:
    text = "你好,世界。今天很好!"
    marks, _, _ = spoken(text, language="zh")
    assert "".join(words([text], marks)).startswith(text[:-1])
    assert len(marks) >= 6


def test_requesting_times_does_not_change_the_sound() -> None:
    text = "Hello there, Dr. Smith. It is 3.5 degrees!"

    async def plain() -> Pcm:
        async with aclosing(create(Settings()).speak(text_chunks([text]), language="en")) as frames:
            return np.concatenate([frame.pcm async for frame in frames])

    # The library's filters remember earlier text: a few samples more or less.
    assert len(spoken(text)[1]) == pytest.approx(len(asyncio.run(plain())), abs=100)


def test_a_word_ends_where_its_sound_ends() -> None:
    clause = ClauseWords("one two", RATE_HZ)
    loud, quiet = np.full(50, 999, np.int16), np.zeros(50, np.int16)
    parts: list[SpeechChunk] = []
    for pcm, events in [
        (loud, [EspeakEvent("word", 0, 0)]),
        (loud, []),
        (quiet, [EspeakEvent("word", 4, 100)]),
        (loud, []),
        (quiet, []),
        (quiet, []),
    ]:
        parts += clause.push(pcm, events)
    parts += clause.finish([EspeakEvent("end", 7, 300)])
    assert sum(len(part.pcm) for part in parts) == 300
    assert [(w.end_char, w.start_ms, w.end_ms) for p in parts for w in p.words] == [
        (3, 0, 100),
        (7, 100, 200),
    ]
