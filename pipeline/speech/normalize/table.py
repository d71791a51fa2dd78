"""Spoken forms of units, money, times and dates: one table per language. Pure."""

import tomllib
from functools import cache
from pathlib import Path

from msgspec import Struct, convert

LANGUAGES = ("de", "en", "es", "fr", "it", "nl", "pl", "pt")
"Languages with a table. In others, symbols are left to the voice."


class ClockForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Spoken form of times of day. `{h}` and `{m}` are numbers, `{hours}` is the form of the
    hour."""

    hours: str
    "Form of the hour (`{h} Uhr`)."
    full_hour: str
    "Form of `14:00`."
    minutes: str
    "Form of `14:30`."
    few_minutes: str
    "Form of `14:05`."
    one_hour: str = ""
    "Form of the hour 1, where it is another one (`ein Uhr`)."
    words: tuple[str, ...] = ()
    "Words for the hour that may follow a time (`14:30 Uhr`), which are not said twice."


class DateForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Spoken form of dates, with `{day}`, `{month}` and `{year}`."""

    form: str
    "Form of a whole date."
    short_form: str
    "Form of a date without its year."
    months: tuple[str, ...]
    "The twelve months as they are said in a date."
    separator: str = ""
    "Separator of a date of numbers, whose day comes first (`1.5.2024`). Empty: it is not read."
    days: tuple[str, ...] = ()
    "The first days of a month as they are said in a date. The others are numbers."
    days_are_ordinal: bool = False
    "True if the days are ordinal numbers."
    splits_years: bool = False
    "True if `1995` is said as 19 and 95."


class OrdinalForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Spoken form of ordinal numbers."""

    suffix: str
    "Letters behind digits that make an ordinal number, such as `th` in `4th`."
    suffix_by_digit: dict[str, str] = {}
    "Last digit -> suffix, for numbers that do not end with 11, 12 or 13."
    words: tuple[str, ...] = ()
    "The first ordinal numbers, where voices do not read the suffix."
    ending: str = ""
    "Ending of the words."
    endings: dict[str, str] = {}
    "Ending -> pattern of the text before the number which demands it."
    written: tuple[str, ...] = ()
    "Suffixes that people write, but voices do not read."


class SpokenFormTable(Struct, frozen=True, forbid_unknown_fields=True):
    """Table of spoken forms of one language.

    A unit has a singular and a plural. In a language that needs more, these are the forms for 1,
    for 2 to 4, for 5 and more, and for a number with decimals.
    """

    units: dict[str, tuple[str, ...]]
    "Units after a number, as they are written."
    money: dict[str, tuple[str, ...]]
    "Names of currencies by ISO 4217 code."
    magnitudes: tuple[str, ...]
    "Words between an amount and its currency: `$3 million` is 3 million dollars."
    magnitude_link: str
    "Word between a magnitude and the currency (`3 millions d'euros`)."
    symbols: dict[str, str]
    "Symbols that are replaced everywhere."
    operators: dict[str, str]
    "Symbols between two numbers, or between words if there are spaces around them."
    before_number: dict[str, str]
    "Symbols that are replaced only right before a digit."
    abbreviations: dict[str, str]
    "Abbreviations with their full stops. The text may leave out their spaces."
    range: str
    "Word for a dash between two numbers."
    months: tuple[str, ...]
    "Words after which `3.` is an ordinal number and no item of a list (`3. Mai`)."
    singular_below: float
    "Numbers below this, and 1, take the singular."
    clock: ClockForm
    dates: DateForm
    ordinals: OrdinalForm
    fractions: dict[str, tuple[str, ...]]
    "Fraction as it is written (`1/2`) -> its words alone, and after a whole number."
    before_roman: tuple[str, ...]
    "Words before a Roman numeral (`chapter IV`)."
    after_roman: tuple[str, ...]
    "Words after a Roman numeral (`XX wiek`)."
    signs: dict[str, str] = {}
    "Further signs of currencies -> ISO 4217 code."
    groups_digits_by_spaces: bool = False
    "True where `10 000` is one number."


@cache
def spoken_form_table(language: str) -> SpokenFormTable:
    """Returns the table of one of LANGUAGES."""
    data = (Path(__file__).parent / "tables" / f"{language}.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(data), SpokenFormTable)
