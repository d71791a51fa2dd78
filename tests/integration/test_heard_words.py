"""The written words up to each moment of playout: chunker, speakable text and a real voice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise

import pytest

from engines.base import WordMark
from engines.tts.espeak import Settings, create
from pipeline.speech.chunker import ClauseChunker
from pipeline.speech.normalize import ClauseNormalizer, NormalizedText

pytestmark = pytest.mark.live

ANSWERS = {
    "en": "**Sure!** It is 20 °C, see [the forecast](https://example.com/a?b=c). 1,000 km/h, "
    "Dr. Who 😀!\n\n- milk\n- `eggs`\n\nThat's *all*.",
    "de": "Am 3. Mai sind es z. B. 20 °C & **5 km/h**. Gut!",
    "fr": "Il fait 20 °C ! Voilà la [liste](http://x.fr/y) : du lait, 5,50 €.",
    "zh": "你好，**世界**！今天很好。再见",
}


def heard(text: str, language: str) -> list[tuple[float, str]]:
    """Yields the time at which a word ends, and the text written up to there."""
    chunker, reader = ClauseChunker(language), ClauseNormalizer(language)
    clauses = [*chunker.push(text), *filter(None, [chunker.flush()])]
    given = [(one, reader.read(one)) for one in clauses]
    spoken: list[tuple[str, NormalizedText]] = [(one, said) for one, said in given if said.text]
    marks: list[WordMark] = []

    async def texts() -> AsyncIterator[str]:
        for _, said in spoken:
            yield said.text

    async def scenario() -> None:
        speech = create(Settings()).speak(texts(), language=language, on_word=marks.append)
        async with aclosing(speech) as frames:
            async for _ in frames:
                pass

    asyncio.run(scenario())
    out = []
    for mark in marks:
        before = [clause for clause, _ in spoken[: mark.chunk]]
        clause, said = spoken[mark.chunk]
        out.append((mark.end_ms, "".join([*before, clause[: said.origin[mark.end_char]]])))
    return out


@pytest.mark.parametrize(("language", "text"), ANSWERS.items())
def test_the_written_words_follow_the_voice(language: str, text: str) -> None:
    heard_words = heard(text, language)
    written = "".join(text.split())
    grown = ["".join(so_far.split()) for _, so_far in heard_words]
    assert all(written.startswith(so_far) for so_far in grown)
    assert all(len(one) <= len(two) for one, two in pairwise(grown))
    assert all(one[0] <= two[0] for one, two in pairwise(heard_words))
    assert grown[-1] == written
    assert len(set(grown)) > len(text) / 12
