"""Clauses end as early as they can be spoken, and never within a number, a name or an address."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.speech.chunker import MAX_CHARS, MAX_FIRST_CHARS, ClauseChunker

PIECES = (
    "yes", "1.5", "Mr.", "no!", "and,", "so;", "why?", "…", "。", "！", "ok:", "a" * 300, "No.",
    "e.g.", "3.", "10:30", "1,000", "(see", "this.)", "[a", "b](http://x.y/z)", "`code.", "`", "**",
    "你好，", "世界。」", "20 °C", "\n", " ", "  ", "z. B.", "J.", "😀", "\ud800",
)  # fmt: skip


def chunked(text: str, *, language: str = "en", sizes: Sequence[int] = (1,)) -> list[str]:
    chunker, out, at, turn = ClauseChunker(language), list[str](), 0, 0
    while at < len(text):
        out += chunker.push(text[at : at + sizes[turn % len(sizes)]])
        at += sizes[turn % len(sizes)]
        turn += 1
    return [*out, *([rest] if (rest := chunker.flush()) else [])]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=20)), st.lists(st.integers(1, 40)))
def test_clauses_join_to_the_text_for_any_sizes_of_pieces(
    pieces: list[str], sizes: list[int]
) -> None:
    text = " ".join(pieces)
    clauses = chunked(text, sizes=sizes or [1000])
    assert "".join("".join(clauses).split()) == "".join(text.split())
    assert clauses == chunked(text)
    assert all(clause == clause.strip() and clause for clause in clauses)
    assert all(len(clause) <= MAX_CHARS for clause in clauses)


@pytest.mark.parametrize(
    "text",
    [
        "It is 3.5 degrees warmer than 1,000 days ago at 10:30 in the morning",
        "Dr. Smith and Mrs. Jones met Prof. Lee at St. Mary's with J. R. R. Tolkien",
        "Bring fruit, e.g. apples or i.e. pears at 5 p.m. or 6 a.m. in the U.S. capital",
        "Room No. 5 shows fig. 3 and vol. 2",
        "Look at https://example.com/a.b?c=d,e;f:g or write to a.b@example.com now",
        "See [the docs. All of them](https://example.com) today",
        "Run `ls -l. And more` twice",
        "1. Buy milk and bread",
        "Version 1.2.3 of v2.0 is out",
    ],
)
def test_numbers_names_and_addresses_are_not_split(text: str) -> None:
    assert len(text) <= MAX_FIRST_CHARS
    assert chunked(text) in ([text], text.replace(", ", ",\n").split("\n"))


@pytest.mark.parametrize(
    ("language", "text", "clauses"),
    [
        ("de", "Am 3. Mai ist z. B. frei. Gut.", ["Am 3. Mai ist z. B. frei.", "Gut."]),
        ("de", "Das war d. h. im 19. Jahrhundert.", ["Das war d. h. im 19. Jahrhundert."]),
        ("de", "Ludwig XIV. war König.", ["Ludwig XIV. war König."]),
        ("de", "Es war 2024. Dann kam ich.", ["Es war 2024.", "Dann kam ich."]),
        ("es", "Los EE. UU. son 50.", ["Los EE. UU. son 50."]),
        ("en", "The answer is 42. Next one.", ["The answer is 42.", "Next one."]),
        ("en", "No. I do not.", ["No.", "I do not."]),
        ("en", "Sure! I can.", ["Sure!", "I can."]),
        ("en", 'He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("en", "(It is so.) Yes.", ["(It is so.)", "Yes."]),
        ("en", "**Now it is.** Yes.", ["**Now it is.**", "Yes."]),
        ("en", "Wait... what?", ["Wait...", "what?"]),
        ("en", "# Title\nText here", ["# Title", "Text here"]),
        ("en", "**1. Title**\n### 2. Next", ["**1. Title**", "### 2. Next"]),
        ("en", "- one\n- two\n", ["- one", "- two"]),
        ("zh", "你好，世界，今天很好。我们走吧！", ["你好，世界，", "今天很好。", "我们走吧！"]),
        ("zh", "他说「好。」然后走了。", ["他说「好。」", "然后走了。"]),
        ("zh", "现在是3：30。", ["现在是3：30。"]),
        ("ja", "えっ！？本当。", ["えっ！？", "本当。"]),
        ("fr", "Il est 10 h 30 ! Voilà.", ["Il est 10 h 30 !", "Voilà."]),
        ("en", "Lights on, all of them.", ["Lights on, all of them."]),
        ("en", "Lights (the red, the blue and the others), now.",
         ["Lights (the red, the blue and the others),", "now."]),
    ],
)  # fmt: skip
def test_where_clauses_end(language: str, text: str, clauses: list[str]) -> None:
    assert chunked(text, language=language) == clauses


def test_a_clause_is_returned_with_the_space_after_it() -> None:
    chunker = ClauseChunker("en")
    assert chunker.push("The lights are on.") == []
    assert chunker.push(" ") == ["The lights are on."]


def test_a_list_item_is_returned_with_its_line() -> None:
    assert ClauseChunker("en").push("- milk\n") == ["- milk"]


def test_text_without_punctuation_is_cut_at_the_length_limit() -> None:
    clauses = ClauseChunker("en").push("word " * 100)
    assert len(clauses[0]) <= MAX_FIRST_CHARS
    assert all(len(clause) <= MAX_CHARS for clause in clauses)
    assert ClauseChunker("zh").push("好" * 150)[0] == "好" * MAX_FIRST_CHARS


def test_a_forced_cut_does_not_split_a_number() -> None:
    clauses = chunked("so " * 32 + "it is 1 000 000 km to go " + "on " * 100)
    assert any("1 000 000 km" in clause for clause in clauses)
