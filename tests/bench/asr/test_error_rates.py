"""Error rates of texts whose errors were counted by hand."""

import pytest

from bench.asr.error_rates import (
    ErrorCounts,
    ScoredText,
    characters,
    errors_of,
    kept_words,
    normalised,
    words,
)


@pytest.mark.parametrize(
    ("reference", "hypothesis", "found"),
    [
        ("a b c", "a b c", ErrorCounts(0, 0, 0, 3)),
        ("a b c", "a c", ErrorCounts(0, 1, 0, 2)),
        ("a b c", "a x c", ErrorCounts(0, 0, 1, 2)),
        ("a b c", "a b c d e", ErrorCounts(2, 0, 0, 3)),
        ("a b c", "", ErrorCounts(0, 3, 0, 0)),
        ("", "a", ErrorCounts(1, 0, 0, 0)),
    ],
)
def test_errors_are_counted_by_kind(reference: str, hypothesis: str, found: ErrorCounts) -> None:
    assert errors_of([ScoredText("x", words(reference), words(hypothesis))]) == found


def test_a_rate_is_of_all_words_together() -> None:
    found = errors_of(
        [
            ScoredText("short", words("a"), words("b")),
            ScoredText("long", words("a b c d e f g h i"), words("a b c d e f g h i")),
        ]
    )
    assert found.percent == 10.0


def test_word_and_character_errors_differ() -> None:
    reference, hypothesis = "turn it on", "turn it in"
    assert errors_of(
        [ScoredText("x", words(reference), words(hypothesis))]
    ).percent == pytest.approx(100 / 3)
    by_character = errors_of([ScoredText("x", characters(reference), characters(hypothesis))])
    assert (by_character.total, by_character.reference_length) == (1, 8)


@pytest.mark.parametrize(("hypothesis", "percent"), [("", 0.0), ("noise", 100.0)])
def test_an_empty_reference_has_a_rate(hypothesis: str, percent: float) -> None:
    assert errors_of([ScoredText("x", [], words(hypothesis))]).percent == percent


@pytest.mark.parametrize(
    ("text", "language", "clean"),
    [
        ("Don't, colour: twenty-five!", "en", "do not color 25"),
        ("Grüß Gott, Frau Müller!", "de", "grüß gott frau müller"),
        ("Twenty-five.", None, "twenty five"),
    ],
)
def test_texts_are_normalised_as_for_whisper(text: str, language: str | None, clean: str) -> None:
    assert normalised(text, language) == clean


@pytest.mark.parametrize(
    ("shown", "final", "kept"),
    [
        (["turn", "turn on", "turn on the"], "turn on the light", (6, 6)),
        (["stop", "turn of"], "Turn off it.", (1, 3)),
        (["turn on."], "Turn on, please", (2, 2)),
        (["turn on the light"], "turn on", (2, 4)),
        ([], "turn on", (0, 0)),
    ],
)
def test_the_share_of_stable_words_of_partials(
    shown: list[str], final: str, kept: tuple[int, int]
) -> None:
    assert kept_words(shown, final) == kept
