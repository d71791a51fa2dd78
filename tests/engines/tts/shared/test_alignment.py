"""Times of words follow from times of phonemes, with equal and with different counts."""

from engines.tts.shared.alignment import Phoneme, word_timings
from engines.tts.shared.synthesis_thread import WordTiming


def sentence(text: str, ms: float = 10) -> list[Phoneme]:
    return [(char, ms) for char in text]


def test_each_group_of_phonemes_is_a_word() -> None:
    clause = "Hi, you. No"
    assert word_timings(clause, [sentence("^ha, ju.$"), sentence("^no$")]) == (
        WordTiming(3, 10, 30),
        WordTiming(8, 50, 70),
        WordTiming(11, 100, 120),
    )


def test_different_word_counts_divide_the_time_by_letters() -> None:
    clause = "of the — house"
    words = word_timings(clause, [sentence("əvðə haʊs")])
    assert [word.end_char for word in words] == [2, 8, 14]
    assert [word.start_ms for word in words] == [0, 18, 45]
    assert words[-1].end_ms == 90


def test_text_without_words_has_no_times() -> None:
    assert word_timings("...", [sentence("^.$")]) == ()
    assert word_timings("a b", []) == (WordTiming(1, 0, 0), WordTiming(3, 0, 0))
