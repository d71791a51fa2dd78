"""Units, money and symbols as words, from one table per language. Pure."""

import re
from dataclasses import dataclass
from functools import cache

from pipeline.speech.normalize.mapped_text import MappedText, Replacement, TextPiece
from pipeline.speech.normalize.numbers import fraction_steps, number_steps
from pipeline.speech.normalize.table import LANGUAGES, SpokenFormTable, spoken_form_table

_NUMBER = r"(?<![\w.,/])([1-3]/[234]|\d+(?:[.,\u00a0\u202f ]\d{3})*(?:[.,]\d+)?[½⅓⅔¼¾]?|[½⅓⅔¼¾])"
FORMS_OF_COUNT = 4
"Number of forms in a language whose words depend on more than singular and plural."
FEW, MANY, FRACTION = 1, 2, 3
"Places of these forms."
_THOUSANDS = re.compile(r"[.,\s]\d{3}(?!\d)")
_MONEY = {"€": "EUR", "$": "USD", "£": "GBP", "¥": "JPY", "₹": "INR", "CHF": "CHF"}


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
    table = spoken_form_table(language)
    steps = (
        *((_abbreviation(short), _ending(long)) for short, long in table.abbreviations.items()),
        *number_steps(table),
        (re.compile(r"(?<=[\w.+-])@(?=[\w-]+\.)"), _word(table.symbols["@"])),
        (re.compile(r"(?<=\d)\s?[–—]\s?(?=\d+(?![\d.]*[–—-]))"), _word(table.range)),
        (re.compile(r"(?<![\w.,)])[-−](?=\d)|−(?=\s?\d)"), _word(table.before_number["-"])),
        *_money_steps(table),
        _unit_step(table),
        *((re.compile(re.escape(sign)), _word(word)) for sign, word in table.symbols.items()),
        *((_between(sign), _word(word)) for sign, word in table.operators.items()),
        *((_before(sign), _word(word)) for sign, word in table.before_number.items()),
        *fraction_steps(table),
    )
    return _SpokenFormRules(steps, frozenset(month.lower() for month in table.months))


def _money_steps(table: SpokenFormTable) -> tuple[tuple[re.Pattern[str], Replacement], ...]:
    forms = {sign: table.money[code] for sign, code in {**_MONEY, **table.signs}.items()}
    forms |= {code: table.money[code] for code in table.money}
    signs = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
    magnitude = rf"(\s(?:{'|'.join(table.magnitudes)})(?!\w))?"
    number = _NUMBER.replace(r"(?<![\w.,/])", "")
    before = re.compile(rf"(?<![\w$€£¥₹])({signs})\s?{number}{magnitude}(?![\d])")
    after = re.compile(rf"{_NUMBER}{magnitude}\s?({signs})(?!\w)")

    many = MANY if any(len(words) == FORMS_OF_COUNT for words in forms.values()) else 1

    def read(number: str, group: int, scale: str | None, sign: str) -> tuple[TextPiece, ...]:
        if scale:
            return (group, group + 1, f" {table.magnitude_link}{forms[sign][many]}")
        whole, cents = _cents(number)
        word = _form(whole or number, forms[sign], table)
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
        return (1, f" {_form(match[1], table.units[match[2]], table)}")

    # Not units: the 1990s, a 5K run. Units: 5 s, 5 K.
    return re.compile(rf"{_NUMBER}(?:[\s\u00a0\u202f-]|(?![sK]\b))({units})(?![\w²³/°])"), read


def _form(number: str, forms: tuple[str, ...], table: SpokenFormTable) -> str:
    """Returns the form of a word behind a number. forms: see `SpokenFormTable`."""
    if len(forms) < FORMS_OF_COUNT:
        return forms[0] if _is_singular(number, table) else forms[1]
    whole = _THOUSANDS.sub(lambda match: match[0][1:], number)
    if not whole.isdigit():
        return forms[FRACTION]
    if whole == "1":
        return forms[0]
    is_few = whole[-1] in "234" and whole[-2:-1] != "1"
    return forms[FEW] if is_few else forms[MANY]


def _is_singular(number: str, table: SpokenFormTable) -> bool:
    if _THOUSANDS.search(number):
        return False
    if "/" in number or number[-1] in "½⅓⅔¼¾":
        return len(number) == 1 or "/" in number
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
