"""Units, money and symbols as words, from one table per language. Pure."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from msgspec import Struct, convert

from pipeline.speech.normalize.mapped_text import MappedText, Replacement, TextPiece

LANGUAGES = ("de", "en", "es", "fr")
"Languages with a table. In others, symbols are left to the voice."

_NUMBER = r"(?<![\w.,])(\d+(?:[.,\u00a0\u202f ]\d{3})*(?:[.,]\d+)?[½¼¾]?|[½¼¾])"
_THOUSANDS = re.compile(r"[.,\s]\d{3}(?!\d)")
_MONEY = {"€": "EUR", "$": "USD", "£": "GBP", "¥": "JPY", "₹": "INR", "CHF": "CHF"}


class SpokenFormTable(Struct, frozen=True, forbid_unknown_fields=True):
    """Table of spoken forms of one language. A pair is the singular and the plural."""

    units: dict[str, tuple[str, str]]
    "Units after a number, as they are written."
    money: dict[str, tuple[str, str]]
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
    "Names of the months, for `3. Mai`."
    singular_below: float
    "Numbers below this, and 1, take the singular."


@dataclass(frozen=True, slots=True)
class _SpokenFormRules:
    steps: tuple[tuple[re.Pattern[str], Replacement], ...]
    months: frozenset[str]


def months(language: str) -> frozenset[str]:
    """Returns the lower-case names of the months; none without a table."""
    return _rules(language).months if language in LANGUAGES else frozenset()


def read_words(text: MappedText, language: str) -> MappedText:
    """Returns the text with words in place of units and symbols: `20 °C` is 20 degrees Celsius.

    Unchanged in a language without a table.
    """
    if language in LANGUAGES:
        for pattern, replace in _rules(language).steps:
            text = text.sub(pattern, replace)
    return text


@cache
def _rules(language: str) -> _SpokenFormRules:
    data = (Path(__file__).parent / f"{language}.toml").read_text(encoding="utf-8")
    table = convert(tomllib.loads(data), SpokenFormTable)
    steps = (
        *((_abbreviation(short), _ending(long)) for short, long in table.abbreviations.items()),
        (re.compile(r"(?<=[\w.+-])@(?=[\w-]+\.)"), _word(table.symbols["@"])),
        (re.compile(r"(?<=\d)\s?[–—]\s?(?=\d+(?![\d.]*[–—-]))"), _word(table.range)),
        (re.compile(r"(?<![\w.,)])[-−](?=\d)|−(?=\s?\d)"), _word(table.before_number["-"])),
        *_money_steps(table),
        _unit_step(table),
        *((re.compile(re.escape(sign)), _word(word)) for sign, word in table.symbols.items()),
        *((_between(sign), _word(word)) for sign, word in table.operators.items()),
        *((_before(sign), _word(word)) for sign, word in table.before_number.items()),
    )
    return _SpokenFormRules(steps, frozenset(month.lower() for month in table.months))


def _money_steps(table: SpokenFormTable) -> tuple[tuple[re.Pattern[str], Replacement], ...]:
    forms = {sign: table.money[code] for sign, code in _MONEY.items()}
    forms |= {code: table.money[code] for code in table.money}
    signs = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
    magnitude = rf"(\s(?:{'|'.join(table.magnitudes)})(?!\w))?"
    number = _NUMBER.replace(r"(?<![\w.,])", "")
    before = re.compile(rf"(?<![\w$€£¥₹])({signs})\s?{number}{magnitude}(?![\d])")
    after = re.compile(rf"{_NUMBER}{magnitude}\s?({signs})(?!\w)")

    def read(number: str, group: int, scale: str | None, sign: str) -> tuple[TextPiece, ...]:
        one, several = forms[sign]
        if scale:
            return (group, group + 1, f" {table.magnitude_link}{several}")
        whole, cents = _cents(number)
        word = one if _is_singular(whole or number, table) else several
        if whole is None:
            return (group, f" {word}")
        return (f"{whole} {word}{f' {cents}' if cents else ''}",)

    return (
        (before, lambda m: read(m[2], 2, m[3], m[1])),
        (after, lambda m: read(m[1], 1, m[2], m[3])),
    )


def _cents(amount: str) -> tuple[str | None, int]:
    """Splits an amount of money: `5.50` is ("5", 50). For other amounts: (None, 0)."""
    found = re.fullmatch(r"(.*\d)[.,](\d\d)", amount)
    return (found[1], int(found[2])) if found else (None, 0)


def _unit_step(table: SpokenFormTable) -> tuple[re.Pattern[str], Replacement]:
    units = "|".join(map(re.escape, sorted(table.units, key=len, reverse=True)))

    def read(match: re.Match[str]) -> tuple[TextPiece, ...]:
        one, several = table.units[match[2]]
        return (1, f" {one if _is_singular(match[1], table) else several}")

    # Not units: the 1990s, a 5K run. Units: 5 s, 5 K.
    return re.compile(rf"{_NUMBER}(?:[\s\u00a0\u202f-]|(?![sK]\b))({units})(?![\w²³/°])"), read


def _is_singular(number: str, table: SpokenFormTable) -> bool:
    if _THOUSANDS.search(number):
        return False
    if number[-1] in "½¼¾":
        return len(number) == 1
    value = float(number.replace(",", "."))
    return value == 1 or value < table.singular_below


def _abbreviation(short: str) -> re.Pattern[str]:
    parts = (re.escape(part) for part in short.split())
    return re.compile(r"(?<![\w.])" + r"\s?".join(parts) + r"(?!\w)")


def _ending(long: str) -> Replacement:
    """Returns a replacement that keeps the full stop at the end of the clause."""

    def read(match: re.Match[str]) -> tuple[TextPiece, ...]:
        is_last = not match.string[match.end() :].strip() and match[0].endswith(".")
        return (f"{long}." if is_last else long,)

    return read


def _before(sign: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(sign)}\s?(?=\d)")


def _between(sign: str) -> re.Pattern[str]:
    sign = re.escape(sign)
    return re.compile(rf"(?<=[\w)])\s+{sign}\s+(?=[\w(])|(?<=\d){sign}(?=\d)")


def _word(word: str) -> Replacement:
    """Returns a replacement with spaces where it touches other words."""

    def read(match: re.Match[str]) -> tuple[TextPiece, ...]:
        before, after = match.string[: match.start()][-1:], match.string[match.end() :][:1]
        left = " " if match[0][0].isspace() or before not in (*" (\"'[", "") else ""
        right = " " if match[0][-1].isspace() or after.isalnum() or after in set("(-$€£~") else ""
        return (f"{left}{word}{right}",)

    return read
