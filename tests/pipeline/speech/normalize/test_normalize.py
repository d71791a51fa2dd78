"""The text that is read aloud for a written text, and the way back to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.speech.chunker import ClauseChunker
from pipeline.speech.normalize import ClauseNormalizer, NormalizedText, speakable
from pipeline.speech.normalize.table import LANGUAGES

PIECES = st.sampled_from(
    ["**bold** ", "*", "_a_", "`code`", "```\n", "[a b](http://x.y/z)", "20 °C ", "€10", "5.50 $ ",
     "https://www.a.com/b?c ", "😀", "👩‍👩‍👧", "- ", "1. ", "# ", "| a | b |\n", "&amp;", "z. B. ",
     "50 % ", "\n", "x", "~5", "a@b.co ", "<b>", "\\*", "[", "]("]
)  # fmt: skip


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("**Hello** *world* and __you__, ~~gone~~!", "Hello world and you, gone!"),
        ("**Note:** it **is", "Note: it is"),
        ("# Title", "Title."),
        ("## Title ##", "Title."),
        ("> quoted", "quoted"),
        ("- milk", "milk."),
        ("  * [x] done!", "done!"),
        ("1. Buy milk", "1: Buy milk."),
        ("12) Buy bread", "12: Buy bread."),
        ("| Name | Age |", "Name, Age."),
        ("|---|:-:|\n| Bob | 5 |", "Bob, 5."),
        ("---", ""),
        ("Run `ls -l`.", "Run ls -l."),
        ("See [the docs](https://a.com/b_c(d) \"t\") now.", "See the docs now."),
        ("![A cat](x.png) and [![img](a)](b)", "A cat and img"),
        ("As known[1][^2], [text][ref].", "As known, text."),
        ("Go to https://user@www.example.com:80/a/b?c=d#e.", "Go to example.com."),
        ("(http://example.com/a_b) or www.foo.org/x", "(example.com) or foo.org"),
        ("<https://foo.org/x> or <a@foo.org>", "foo.org or a at foo.org"),
        ("x<br>y <b>z</b> &lt;3&nbsp;!", "x y z less than 3 !"),
        ("Great 😀! Really 👩‍👩‍👧 so 1️⃣ ok 🇩🇪", "Great! Really so 1 ok"),
        ("snake_case, 2*3, 2 * 3", "snake case, 2 times 3, 2 times 3"),
        ("😀", ""),
        ("***", ""),
        ("It's \\*so\\*.", "It's so."),
    ],
)  # fmt: skip
def test_markdown_in_english(written: str, read: str) -> None:
    assert speakable(written, "en") == read


@pytest.mark.parametrize(
    ("language", "written", "read"),
    [
        ("en", "20 °C, -5°C, 72°F",
         "20 degrees Celsius, minus 5 degrees Celsius, 72 degrees Fahrenheit"),
        ("en", "1 km and 1,000 km at 5 km/h",
         "1 kilometer and 1,000 kilometers at 5 kilometers per hour"),
        ("en", "€10, $5.50, $1, £3.00, $3 million",
         "10 euros, 5 dollars 50, 1 dollar, 3 pounds, 3 million dollars"),
        ("en", "50 % & 3–5 kg, ~5 min", "50 percent and 3 to 5 kilograms, about 5 minutes"),
        ("en", "1 + 2 = 3, AT&T, x -> y", "1 plus 2 equals 3, AT and T, x to y"),
        ("en", "e.g. this, i.e. that, etc.", "for example this, that is that, et cetera."),
        ("en", "10:30 on 2024-05-01, 555-1234, well-known",
         "10 30 on May 1st, 20 24, 555-1234, well-known"),
        ("en", "5 in the box, C++ and C#, a/b", "5 in the box, C++ and C#, a/b"),
        ("de", "20 °C und 1,5 l, z.B. 3 Min.",
         "20 Grad Celsius und 1,5 Liter, zum Beispiel 3 Minuten"),
        ("en", "the 1990s, a 5K run, 5 s, 5 > 3, >3",
         "the 1990s, a 5K run, 5 seconds, 5 greater than 3, more than 3"),
        ("en", "(10 %)!, 100%!", "(10 percent)!, 100 percent!"),
        ("en", "½ tsp, 1½ tbsp", "half teaspoon, 1 and a half tablespoons"),
        ("de", "1,3 Mio. €, § 5 Abs. 2", "1,3 Millionen Euro, Paragraf 5 Absatz 2"),
        ("de", "3. Mai ist frei", "dritter Mai ist frei"),
        ("de", "1. Milch kaufen", "1: Milch kaufen."),
        ("de", "1.234,50 € & 10–12 Uhr", "1.234 Euro 50 und 10 bis 12 Uhr"),
        ("fr", "1,5 km, 10 h 30, 5,50 €, 50 % !",
         "1,5 kilomètre, 10 heures 30, 5 euros 50, 50 pour cent !"),
        ("fr", "3 millions €, p. ex. ici", "3 millions d'euros, par exemple ici"),
        ("es", "20 °C, $20, p. ej. 5 km/h",
         "20 grados Celsius, 20 dólares, por ejemplo 5 kilómetros por hora"),
        ("sv", "**Hej** 20 °C & www.foo.se/x 😀", "Hej 20 °C & foo.se"),
        ("hi", "क\u094d\u200dष", "क\u094d\u200dष"),
    ],
)  # fmt: skip
def test_units_and_symbols_by_language(language: str, written: str, read: str) -> None:
    assert speakable(written, language) == read


def read_all(text: str, language: str = "en") -> list[tuple[str, NormalizedText]]:
    chunker, reader = ClauseChunker(language), ClauseNormalizer(language)
    clauses = chunker.push(text)
    if rest := chunker.flush():
        clauses.append(rest)
    return [(clause, reader.read(clause)) for clause in clauses]


def test_code_blocks_are_not_read() -> None:
    text = "Do this:\n```python\nx = 1. y = 2.\n\nprint(x)\n```\nThat is it."
    assert [spoken.text for _, spoken in read_all(text) if spoken.text] == [
        "Do this:",
        "That is it.",
    ]


def test_markup_that_spans_clauses_is_not_read() -> None:
    text = "**Bold, this goes on over. Here it ends** and *this. Too* is `so. ok`."
    assert not set("*`") & set("".join(spoken.text for _, spoken in read_all(text)))


def heard(clause: str, spoken: NormalizedText) -> list[str]:
    """Returns the written part of the clause up to each spoken word."""
    ends = [at for at in range(1, len(spoken.text)) if spoken.text[at].isspace()]
    return [clause[: spoken.origin[end]] for end in [*ends, len(spoken.text)]]


@pytest.mark.parametrize(
    ("clause", "after_words"),
    [
        ("**Bold** text", ["**Bold**", "**Bold** text"]),
        ("It is 20 °C.", ["It", "It is", "It is 20", "It is 20 °C", "It is 20 °C."]),
        ("See [the docs](https://a.b/c) now", ["See", "See [the", "See [the docs](https://a.b/c)",
                                             "See [the docs](https://a.b/c) now"]),
        ("€10 only", ["€10", "€10", "€10 only"]),
        ("at https://a.com/b ok 😀", ["at", "at https://a.com/b", "at https://a.com/b ok 😀"]),
    ],
)  # fmt: skip
def test_every_spoken_word_maps_to_its_written_text(clause: str, after_words: list[str]) -> None:
    assert heard(clause, ClauseNormalizer("en").read(clause)) == after_words


@given(st.lists(PIECES | st.text(max_size=8)), st.sampled_from([*LANGUAGES, "it", "zh"]))
def test_any_text_can_be_normalized(pieces: list[str], language: str) -> None:
    for clause, spoken in read_all("".join(pieces), language):
        assert len(spoken.origin) == len(spoken.text) + 1
        assert list(spoken.origin) == sorted(spoken.origin)
        assert spoken.origin[0] == 0
        assert spoken.origin[-1] == (len(clause) if spoken.text else 0)
        assert spoken.text == " ".join(spoken.text.split())
        assert not spoken.text or any(map(str.isalnum, spoken.text))


@pytest.mark.parametrize("language", LANGUAGES)
def test_plain_sentences_stay_unchanged(language: str) -> None:
    for text in ("It's nice - isn't it?", "Ça va ! ¿Qué tal? Größe: gut.", '"Yes," he said.'):
        assert speakable(text, language) == text
