"""Tables of how an answer is cut, where the next window begins, and which language is chosen."""

import pytest

from engines.asr.whisper.prompt import LanguageDetection, choose_language
from engines.asr.whisper.segments import split_segments

T = 1000
"The first timestamp; tokens of words have lower numbers."


@pytest.mark.parametrize(
    ("tokens", "pieces", "next_frame", "is_complete"),
    [
        ([1, 2], [(1.0, 3.0, [1, 2])], 300, False),
        ([T, 1, 2, T + 50], [(1.0, 2.0, [T, 1, 2, T + 50])], 300, True),
        ([T, 1, T], [(1.0, 3.0, [T, 1, T])], 300, True),
        (
            [T, 1, T + 20, T + 25, 2, T + 50],
            [(1.0, 1.4, [T, 1, T + 20]), (1.5, 2.0, [T + 25, 2, T + 50])],
            300,
            True,
        ),
        ([T, 1, T + 20, T + 25, 2], [(1.0, 1.4, [T, 1, T + 20])], 140, False),
        ([T, 1, T + 20, T + 20], [(1.0, 1.4, [T, 1, T + 20])], 140, False),
        ([], [(1.0, 3.0, [])], 300, False),
    ],
)
def test_answers_are_cut_between_two_timestamps(
    tokens: list[int],
    pieces: list[tuple[float, float, list[int]]],
    next_frame: int,
    is_complete: bool,
) -> None:
    found = split_segments(tokens, T, seek=100, frames=200)
    rounded = [(round(p["start"], 3), round(p["end"], 3), p["tokens"]) for p in found.segments]
    assert rounded == pieces
    assert (found.next_frame, found.is_complete) == (next_frame, is_complete)


HEARD = [("<|en|>", 0.6), ("<|de|>", 0.3), ("<|nl|>", 0.1)]


@pytest.mark.parametrize(
    ("allowed", "spoken"),
    [
        ((), LanguageDetection("en", 0.6)),
        (("de", "nl"), LanguageDetection("de", 0.75)),
        (("nl",), LanguageDetection("nl", 1.0)),
        (("xx",), LanguageDetection("en", 0.6)),
    ],
)
def test_the_likeliest_allowed_language_is_chosen(
    allowed: tuple[str, ...], spoken: LanguageDetection
) -> None:
    found = choose_language(HEARD, allowed)
    assert found.language == spoken.language
    assert found.probability == pytest.approx(spoken.probability)
