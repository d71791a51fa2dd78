"""A fallback voice speaks the clauses that the first one cannot; positions and words stay right."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Collection
from contextlib import aclosing

import numpy as np
import pytest

from core.audio import AudioFrame
from core.errors import EarshotError, EngineCrashed, RequestError
from engines.base import TtsInfo, WordMark
from engines.tts.shared.text import MAX_CLAUSE_CHARS, UNSPEAKABLE
from pipeline.speech.fallback import FallbackTts
from pipeline.speech.language.language_id import TextLanguageDetector
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts

SPARE_HZ, FIRST_HZ = 8000, 16_000
LETTER_S = 0.01
"Sound of one letter."


class Voice:
    """A voice with one frame and one word per chunk. Some words in a chunk make it fail, unless it
    is robust."""

    def __init__(self, name: str, rate_hz: int, *languages: str, is_robust: bool = False) -> None:
        self._is_robust = is_robust
        voices = {code: (f"{name}-{code}",) for code in languages}
        self.info = TtsInfo(name, rate_hz, voices, has_word_times=True)
        self.spoken: list[tuple[str, str]] = []
        "Language and text of each chunk that it was asked for."
        self.open = 0

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        self.open += 1
        try:
            async for chunk in text:
                self.spoken.append((language, chunk))
                self._fail(chunk)
                length = round(len(chunk) * LETTER_S * self.info.rate_hz)
                if on_word is not None:
                    on_word(WordMark(0, len(chunk), 0, len(chunk) * LETTER_S * 1000))
                yield AudioFrame(np.full(length, 500, np.int16), self.info.rate_hz, 0)
                if "late" in chunk:
                    raise EngineCrashed("tts", self.info.name, "died")
        finally:
            self.open -= 1

    def _fail(self, chunk: str) -> None:
        errors = {
            "refused": RequestError("not English", code=UNSPEAKABLE),
            "crash": EngineCrashed("tts", self.info.name, "died"),
            "wrong": RequestError("no such speed", param="speed"),
            "bug": ZeroDivisionError(),
        }
        for word, error in errors.items():
            if word in chunk and not self._is_robust:
                raise error


class German(TextLanguageDetector):
    """Takes every text for German."""

    async def detect(self, text: str, usual: str, known: Collection[str] = ()) -> str:
        return "de" if "de" in known else usual


class Stage:
    """A first voice for English, and a spare one for English and German."""

    def __init__(self, *spare_languages: str) -> None:
        self.first = Voice("first", FIRST_HZ, "en")
        self.spare = Voice("spare", SPARE_HZ, *(spare_languages or ("en", "de")), is_robust=True)
        self.counts = Counts()
        self.tts = FallbackTts(self.first, self.spare, German(), self.counts)
        self.marks: list[WordMark] = []

    def say(self, *texts: str) -> list[AudioFrame]:
        async def given() -> AsyncIterator[str]:
            for text in texts:
                yield text

        said: list[AudioFrame] = []

        async def main() -> None:
            frames = self.tts.speak(given(), language="en", on_word=self.marks.append)
            async with aclosing(frames):
                said.extend([frame async for frame in frames])

        run_virtual(main())
        return said


def test_a_refused_clause_is_spoken_by_the_spare_voice_in_its_language() -> None:
    stage = Stage()
    frames = stage.say("one two", "refused text", "three")
    assert stage.first.spoken == [("en", "one two"), ("en", "refused text"), ("en", "three")]
    assert stage.spare.spoken == [("de", "refused text")]
    assert {frame.rate_hz for frame in frames} == {FIRST_HZ}
    ends = [0, *(frame.end for frame in frames)]
    assert [frame.start for frame in frames] == ends[:-1]
    assert ends[-1] == pytest.approx(24 * LETTER_S * FIRST_HZ, abs=2)
    assert [(mark.chunk, mark.end_char) for mark in stage.marks] == [(0, 7), (1, 12), (2, 5)]
    assert [mark.start_ms for mark in stage.marks] == pytest.approx([0, 70, 190], abs=1)


@pytest.mark.parametrize(
    ("text", "code", "is_error"),
    [
        ("crash", "engine_crashed", True),
        ("bug", "engine_failed", True),
        ("refused", UNSPEAKABLE, False),
    ],
)
def test_a_failure_is_counted_and_logged_without_the_text(
    text: str, code: str, is_error: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    assert stage.say(f"{text} zebra")
    assert stage.spare.spoken == [("de" if text == "refused" else "en", f"{text} zebra")]
    assert stage.counts.counts[f"earshot_tts_fallbacks:{code}"] == 1
    assert stage.counts.counts.get(f"earshot_errors:{code}", 0) == is_error
    assert ("spare speaks the clause" in caplog.text) == is_error
    assert "zebra" not in caplog.text


@pytest.mark.parametrize(
    ("text", "languages"), [("late", ("en",)), ("wrong", ("en",)), ("crash", ("fr",))]
)
def test_other_errors_are_raised(text: str, languages: tuple[str, ...]) -> None:
    """After the first sound, for a wrong request, and where the spare lacks the language."""
    stage = Stage(*languages)
    with pytest.raises(EarshotError):
        stage.say(text)
    assert stage.spare.spoken == []


def test_only_the_refused_part_of_a_long_text_changes_its_voice() -> None:
    stage = Stage()
    long = "refused, ".rjust(MAX_CLAUSE_CHARS, "x")
    stage.say(f"{'word ' * 60}{long}")
    assert [text.count("refused") for _, text in stage.spare.spoken] == [1]
    assert stage.marks[-1].end_char == 300 + len(long.rstrip())


@pytest.mark.parametrize("text", ["one", "refused"])
def test_an_interrupted_clause_closes_the_voice(text: str) -> None:
    stage = Stage()

    async def main() -> None:
        async def given() -> AsyncIterator[str]:
            yield text

        async with aclosing(stage.tts.speak(given(), language="en")) as frames:
            await anext(frames)
        await asyncio.sleep(0)
        assert stage.first.open == stage.spare.open == 0

    run_virtual(main())
