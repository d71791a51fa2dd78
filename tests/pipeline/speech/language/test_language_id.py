"""Language detection of short texts, as people say them to an assistant; with the real model."""

import asyncio

import pytest

from engines.tts.espeak.library import espeak_library
from pipeline.speech.language.language_id import WIDESPREAD, TextLanguageDetector

pytestmark = pytest.mark.live

LANGUAGES = TextLanguageDetector()
"One detector for all tests, because loading takes a second."


def of(text: str, usual: str = "en", known: tuple[str, ...] = ()) -> str:
    return asyncio.run(LANGUAGES.detect(text, usual, known))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Turn on the light.", "en"),
        ("It is 21 degrees.", "en"),
        ("I bought Müller milk in Berlin and it was wunderbar.", "en"),
        ("Das Licht ist an.", "de"),
        ("Ich weiß es nicht.", "de"),
        ("Bonjour, comment ça va?", "fr"),
        ("La cocina está lista.", "es"),
        ("Buongiorno a tutti", "it"),
        ("Dzień dobry", "pl"),
        ("Привет, как дела?", "ru"),
        ("今天天气怎么样", "zh"),
        ("こんにちは", "ja"),
    ],
)
def test_a_sentence_reveals_its_language(text: str, language: str) -> None:
    assert of(text) == language
    assert of(text, language) == language


@pytest.mark.parametrize("usual", ["en", "de", "fr"])
@pytest.mark.parametrize("text", ["OK", "No.", "Willow", "21", "", "...", "😀"])
def test_an_ambiguous_text_has_the_usual_language(text: str, usual: str) -> None:
    assert of(text, usual) == usual


def test_only_known_languages_are_detected() -> None:
    assert of("Das Licht ist an.", "en", ("en", "de")) == "de"
    assert of("Das Licht ist an.", "en", ("en", "fr")) == "en"


def test_a_usual_language_that_the_model_does_not_know_stays() -> None:
    assert of("Das Licht ist an.", "br") == "br"


def test_a_very_long_text_is_detected() -> None:
    assert of("Das Licht ist an. " * 100_000) == "de"


def test_espeak_speaks_all_widespread_languages() -> None:
    assert set(espeak_library().voices) >= WIDESPREAD
