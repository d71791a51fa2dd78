"""Clauses in another language than their text."""

import asyncio
from collections.abc import AsyncGenerator, Collection

import pytest

from core.errors import RequestError
from pipeline.speech.language.clause_language import ClauseLanguages, in_own_languages
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.synthesis import PlannedClause, SpeechPlan, SpeechStep
from tests.pipeline.fakes import ToneTts


class GermanDetector(TextLanguageDetector):
    """Takes every text for German, and keeps the texts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def detect(self, text: str, usual: str, known: Collection[str] = ()) -> str:
        self.asked.append(text)
        return "de"


def languages_of(*clauses: str, language: str = "en") -> tuple[list[str], list[str]]:
    """Returns the language of each clause, and the clauses that the classifier was asked for."""
    detector = GermanDetector()
    languages = ClauseLanguages(language, detector)

    async def main() -> list[str]:
        return [await languages.of(clause) for clause in clauses]

    return asyncio.run(main()), detector.asked


@pytest.mark.parametrize(
    "clause",
    [
        "The light in the kitchen is on.",
        "It is 20 degrees, and you should not need a coat.",
        "Guten Morgen!",
        "Joe's Pizza Palace.",
        "`def read(self, name, text, value)`",
        "See https://example.com/der/die/das/und now.",
        "",
    ],
)
def test_the_classifier_is_not_asked_for_usual_clauses(clause: str) -> None:
    assert languages_of(clause) == (["en"], [])


@pytest.mark.parametrize(
    ("language", "clause"),
    [
        ("en", "Das Wetter in Berlin ist heute schön."),
        ("en", "Il fait très beau à Paris."),
        ("en", "Сегодня солнце."),
        ("en", "今日は晴れです。"),
        ("de", "The weather is nice in London."),
    ],
)
def test_the_classifier_is_asked_for_other_clauses(language: str, clause: str) -> None:
    assert languages_of(clause, language=language) == (["de"], [clause])


def test_a_short_rest_of_a_sentence_has_its_language() -> None:
    clauses = ("Heute scheint die Sonne,", "morgen regnet es.", "Good night!")
    assert languages_of(*clauses)[0] == ["de", "de", "en"]


async def clauses(*texts: str) -> AsyncGenerator[SpeechStep, None]:
    for text in texts:
        yield text


def test_a_clause_in_another_language_gets_its_own_plan_if_a_voice_speaks_it() -> None:
    german = SpeechPlan(ToneTts(), "de")

    def no_voice(language: str) -> SpeechPlan:
        raise RequestError(f"no voice speaks {language}")

    texts = ("It is on.", "Das Wetter in Berlin ist schön.")

    async def main() -> None:
        given = in_own_languages(clauses(*texts), "en", GermanDetector(), lambda _: german)
        assert [one async for one in given] == [texts[0], PlannedClause(texts[1], german)]
        given = in_own_languages(clauses(*texts), "en", GermanDetector(), no_voice)
        assert [one async for one in given] == list(texts)

    asyncio.run(main())
