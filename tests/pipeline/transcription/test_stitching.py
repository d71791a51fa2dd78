"""Stitching the results of segments: times in order whatever the recogniser returns, and the words
of every segment."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from engines.base import AsrResult, Segment, TokenLogprob, Word
from pipeline.transcription.stitching import join_texts, shift_times, stitch_results, words_of


def result(text: str, *, language: str = "en", confidence: float = 0.5) -> AsrResult:
    token = TokenLogprob(text.encode(), -0.1)
    return AsrResult(text, confidence, language, tokens=(token,) if text else ())


def test_a_result_without_segments_becomes_one_segment() -> None:
    assert shift_times(result("one"), 16_000, 32_000).segments == (Segment("one", 1000, 3000),)
    assert shift_times(result(""), 16_000, 32_000).segments == ()


@pytest.mark.parametrize("seed", range(50))
def test_times_never_go_back_and_words_stay_in_their_segment(seed: int) -> None:
    dice = random.Random(seed)

    def span() -> tuple[float, float]:
        start_ms = dice.uniform(-500, 5000)
        return start_ms, start_ms + dice.uniform(-200, 2000)

    segments = tuple(Segment(str(i), *span()) for i in range(dice.randint(1, 5)))
    words = tuple(Word(str(i), *span(), 1.0) for i in range(dice.randint(0, 12)))
    out = shift_times(AsrResult("x", 1, "en", words, segments=segments), 160_000, 64_000)
    assert [w.text for w in out.words] == [w.text for w in words]
    both: list[Sequence[Segment | Word]] = [out.segments, out.words]
    for spans in both:
        assert all(10_000 <= s.start_ms <= s.end_ms <= 14_000 for s in spans)
        assert all(a.end_ms <= b.start_ms for a, b in pairwise(spans))
    for word in out.words:
        assert any(s.start_ms <= word.start_ms and word.end_ms <= s.end_ms for s in out.segments)


def test_ordered_times_are_only_shifted() -> None:
    words = (Word("a", 100, 200, 1), Word("b", 300, 400, 1), Word("c", 900, 990, 1))
    segments = (Segment("a b", 100, 400), Segment("c", 800, 1000))
    out = shift_times(AsrResult("a b c", 1, "en", words, segments=segments), 16_000, 16_000)
    assert [(w.start_ms, w.end_ms) for w in out.words] == [(1100, 1200), (1300, 1400), (1900, 1990)]
    assert [(s.start_ms, s.end_ms) for s in out.segments] == [(1100, 1400), (1800, 2000)]


def test_stitched_results_join_texts_confidence_and_language() -> None:
    rejected = AsrResult("", 0.1, "de", is_rejected=True)
    both = stitch_results([(rejected, 1), (result("one", confidence=0.9), 1), (result("two"), 3)])
    assert (both.text, both.language, both.is_rejected) == ("one two", "en", False)
    assert both.confidence == pytest.approx(0.6)
    assert [token.data for token in both.tokens] == [b"one", b"two"]
    nothing = stitch_results([(rejected, 1), (result(""), 2)])
    assert (nothing.text, nothing.is_rejected, nothing.language) == ("", True, "de")


@pytest.mark.parametrize(
    ("texts", "text"),
    [
        (["a", "", "b"], "a b"),
        (["打开灯。", "", "关灯"], "打开灯。关灯"),
        (["打开灯?", "关灯"], "打开灯?关灯"),
        (["明日は", "OK."], "明日はOK."),
        (["불을 켜.", "꺼."], "불을 켜. 꺼."),
        (["เปิดไฟ", "ปิดไฟ"], "เปิดไฟปิดไฟ"),
        ([], ""),
    ],
)
def test_texts_are_joined_without_spaces_where_the_script_has_none(
    texts: list[str], text: str
) -> None:
    assert join_texts(texts) == text


def test_a_translation_is_joined_by_its_own_script() -> None:
    parts = [(AsrResult(text, 1, "zh"), 1.0) for text in ("Open it.", "Close it.")]
    assert stitch_results(parts).text == "Open it. Close it."


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (" turn  on the", ["turn", " on", " the"]),
        ("打开 TV2。", ["打", "开", " TV2", "。"]),
        ("", []),
    ],
)
def test_words_of_a_text(text: str, words: list[str]) -> None:
    assert words_of(text) == words
