"""The sentences for training a recogniser's language model."""

import re
import time

import pytest

from engines.llm import intents
from tests.engines.llm.intents.text_conversation import Talk

pytestmark = pytest.mark.live


@pytest.mark.parametrize("language", ["en", "de", "fr", "es"])
def test_phrases_are_spoken_words_that_are_understood(language: str) -> None:
    specs = Talk(language).specs()
    said = intents.phrases(language, specs, 400)
    assert len(said) > 350
    assert not [text for text in said if re.search(r"[^\w' ]|[0-9_]|[A-Z]", text)]
    unknown = {text for text in said if intents.understand(text, language, specs) is None}
    assert len(unknown) < 0.01 * len(set(said)), sorted(unknown)[:20]


def test_phrases_cover_the_home_and_the_numbers() -> None:
    specs = Talk().specs()
    text = " | ".join(intents.phrases("en", specs, 6000))
    rooms = ["kitchen", "living room", "basement", "dining room"]
    for needed in [*rooms, "coffee machine", "london", "bananas", "ninety nine", "one hundred"]:
        assert needed in text
    for unit in ("second", "minute", "hour"):
        assert f"for one {unit}" in text
        assert f"forty two {unit}s" in text


def test_phrases_are_reproducible_and_computed_quickly() -> None:
    specs = Talk().specs()
    begin_s = time.process_time()
    said = intents.phrases("en", specs, 5000)
    assert time.process_time() - begin_s < 1
    assert said == intents.phrases("en", Talk().specs(), 5000)
    assert len(said) <= 5000


@pytest.mark.parametrize("limit", [0, 1, 50])
def test_the_number_of_phrases_is_limited(limit: int) -> None:
    assert len(intents.phrases("en", Talk().specs(), limit)) <= limit


def test_a_language_without_own_sentences_has_no_phrases() -> None:
    assert intents.phrases("it", Talk("it").specs(), 100) == ()
