"""Codes in transcripts: found as recognisers write them, and taken out."""

import pytest

from pipeline.shared.spoken_codes import SpokenCodes
from pipeline.tools.guards import Guards, GuardSettings

CODES = Guards(
    {
        "door": GuardSettings(locks=("anna",), tools=("open",), code="4711"),
        "safe": GuardSettings(locks=("anna",), tools=("safe",), code="Marmalade"),
        "none": GuardSettings(locks=("anna",), tools=("other",)),
    }
).codes()


@pytest.mark.parametrize(
    ("said", "left", "names"),
    [
        ("Open the front door, 4711.", "Open the front door.", {"door"}),
        ("open the front door four seven one one", "open the front door", {"door"}),
        ("4 7 1 1 open the front door", "open the front door", {"door"}),
        ("open the door 47-11 please", "open the door please", {"door"}),
        ("4,711 open the door", "open the door", {"door"}),
        ("Haustür aufschließen vier sieben eins eins", "Haustür aufschließen", {"door"}),
        ("ouvre la porte quatre sept un un", "ouvre la porte", {"door"}),
        ("打开门四七一一", "打开门四七一一", set()),  # no spaces: words and digits are one
        ("打开门，四七一一", "打开门，", {"door"}),
        ("open the safe, marmalade", "open the safe", {"safe"}),
        ("Marmalade and 4711", "and", {"safe", "door"}),
        ("4711", "", {"door"}),
        # A row of digits that has every code in it is none.
        ("open 47110", "open 47110", set()),
        ("open one four seven one one", "open one four seven one one", set()),
        ("open 4712", "open 4712", set()),
        ("open the marmalades", "open the marmalades", set()),
        ("", "", set()),
    ],
)
def test_a_code_is_taken_out_of_the_words(said: str, left: str, names: set[str]) -> None:
    text, found = CODES.take(said)
    assert (text, set(found)) == (left, names)


def test_without_codes_nothing_changes_and_no_repr_has_one() -> None:
    assert SpokenCodes().take("open the door, 4711") == ("open the door, 4711", frozenset())
    assert "4711" not in repr(CODES)
