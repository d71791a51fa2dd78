"""Times of day, dates, ordinal numbers, fractions and telephone numbers as words. Pure.

Only what is sure is replaced: `1/2/2024` is another day in London than in New York.
"""

import re
from collections.abc import Iterator

from pipeline.speech.normalize.mapped_text import Replacement, TextPiece
from pipeline.speech.normalize.table import SpokenFormTable

Step = tuple[re.Pattern[str], Replacement]
"A pattern, and what its matches are replaced by."

_NO_NUMBER_BEFORE = r"(?<![\w.,:/+-])"
_NO_NUMBER_AFTER = r"(?![\w:/]|[.,-]\d)"
_HALF_DAY = r"(?!\s?[aApP]\.?[mM]\b)"

_PHONE = re.compile(
    r"(?<![\w+])(?:"
    r"\+\d{1,3}[ -]?(?:\(0?\d{1,4}\)[ -]?)?\d{1,5}(?:[ /-]?\d{2,8}){1,5}"  # +49 30 1234567
    r"|\(\d{3}\) ?\d{3}-\d{4}|\d{3}-\d{3}-\d{4}"  # of North America
    r"|0\d(?:[ .]\d\d){4}"  # of France
    r")(?![\w-]|[.,]\d)"
)
_ISO_DATE = re.compile(r"(?<![\w.,/-])(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(?![\w/-])")
_HYPHEN_RANGE = re.compile(r"(?<![\w.,/-])(\d{1,3}|[12]\d{3})-(\d{1,3}|[12]\d{3})(?=\s[^\W\d])")
_ROMAN = r"(?=[IVXL]{2,})(X{0,3}L?X{0,3}(?:IX|IV|V?I{0,3}))"
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50}
_SIGNS_OF_FRACTIONS = {"1/2": "½", "1/3": "⅓", "2/3": "⅔", "1/4": "¼", "3/4": "¾"}
_NO_FRACTION_AFTER = r"(?![\w/]|[.,]\d)"
_NO_BREAK_GROUPS = re.compile(r"(?<![\d.,])\d{1,3}(?:[\u00a0\u202f]\d{3})+(?!\d)")
_SPACE_GROUPS = re.compile(r"(?<!\d )(?<![\w.,])(?:[1-9]\d?(?: \d{3})+|[1-9]\d\d \d{3})(?! ?\d)")


def number_steps(table: SpokenFormTable) -> Iterator[Step]:
    """Yields the replacements that come before those of units, in their order."""
    plus = table.before_number["+"]
    yield _PHONE, lambda match: (phone_words(match[0], plus),)
    yield _ISO_DATE, lambda match: _date(table, match, match[3], match[2], match[1])
    if table.dates.separator:
        yield _numeric_date(table)
    yield from _times(table)
    yield from _days_of_months(table)
    yield from _ordinals(table)
    yield from _roman_numerals(table)
    yield _HYPHEN_RANGE, lambda match: _range(table, match)
    yield _NO_BREAK_GROUPS, _joined
    if table.groups_digits_by_spaces:
        yield _SPACE_GROUPS, _joined


def fraction_steps(table: SpokenFormTable) -> Iterator[Step]:
    """Yields the replacements of fractions. They come after those of units (`½ kg`)."""
    for written, (alone, *more) in table.fractions.items():
        behind = more[0] if more else alone
        sign = _SIGNS_OF_FRACTIONS.get(written)
        if sign:
            yield re.compile(rf"(?<=\d) ?{sign}(?!\w)"), _words(f" {behind}")
            yield re.compile(rf"(?<!\w){sign}(?!\w)"), _words(alone)
        yield re.compile(rf"(?<=\d) {written}{_NO_FRACTION_AFTER}"), _words(f" {behind}")
        yield re.compile(rf"(?<![\w.,/-]){written}{_NO_FRACTION_AFTER}"), _words(alone)


def phone_words(number: str, plus: str) -> str:
    """Returns a telephone number digit by digit, its groups apart."""
    groups = (" ".join(group) for group in re.findall(r"\d+", number))
    return f"{plus} " * number.startswith("+") + ", ".join(groups)


def clock_words(table: SpokenFormTable, hour: int, minute: int) -> str:
    """Returns a time of day as it is said."""
    form = table.clock
    pattern = form.full_hour if not minute else form.few_minutes if minute < 10 else form.minutes
    hours = form.one_hour if hour == 1 and form.one_hour else form.hours.format(h=hour)
    return pattern.format(hours=hours, m=minute)


def date_words(
    table: SpokenFormTable, day: int, month: int, year: int | None, before: str = ""
) -> str:
    """Returns a date as it is said after the text `before`."""
    dates, said_day = table.dates, _day(table, day, before)
    said_month = dates.months[month - 1]
    if year is None:
        return dates.short_form.format(day=said_day, month=said_month)
    return dates.form.format(day=said_day, month=said_month, year=_year(table, year))


def ordinal_words(table: SpokenFormTable, number: int, before: str = "") -> str:
    """Returns an ordinal number as it is said after the text `before`."""
    form = table.ordinals
    if not 1 <= number <= len(form.words):
        is_teen = number % 100 in {11, 12, 13}
        return f"{number}{form.suffix if is_teen else _suffix(table, number)}"
    endings = (end for end, text in form.endings.items() if re.search(text, before, re.IGNORECASE))
    return form.words[number - 1] + next(endings, form.ending)


def _suffix(table: SpokenFormTable, number: int) -> str:
    return table.ordinals.suffix_by_digit.get(str(number)[-1], table.ordinals.suffix)


def _day(table: SpokenFormTable, day: int, before: str) -> str:
    if table.dates.days_are_ordinal:
        return ordinal_words(table, day, before)
    return table.dates.days[day - 1] if day <= len(table.dates.days) else str(day)


def _date(
    table: SpokenFormTable, match: re.Match[str], day: str, month: str, year: str
) -> tuple[TextPiece, ...]:
    before = match.string[: match.start()]
    return (date_words(table, int(day), int(month), int(year), before),)


def _year(table: SpokenFormTable, year: int) -> str:
    century, rest = divmod(year, 100)
    if not table.dates.splits_years or not 11 <= century <= 20 or rest < 10:
        return str(year)
    return f"{century} {rest}"


def _numeric_date(table: SpokenFormTable) -> Step:
    separator = re.escape(table.dates.separator)
    pattern = re.compile(
        rf"(?<![\w.,/-])(0?[1-9]|[12]\d|3[01]){separator}\s?(0?[1-9]|1[0-2]){separator}\s?"
        rf"([12]\d{{3}})(?![\w/-]|[.,]\d)"
    )
    return pattern, lambda match: _date(table, match, match[1], match[2], match[3])


def _times(table: SpokenFormTable) -> Iterator[Step]:
    words = "|".join(map(re.escape, table.clock.words))
    after = rf"(?:\s?(?:{words})(?!\w))?" if words else ""
    pattern = re.compile(
        rf"{_NO_NUMBER_BEFORE}([01]?\d|2[0-3]):([0-5]\d){_NO_NUMBER_AFTER}{_HALF_DAY}{after}"
    )
    yield pattern, lambda match: (clock_words(table, int(match[1]), int(match[2])),)
    if "h" in table.clock.words:  # 14h30
        pattern = re.compile(rf"{_NO_NUMBER_BEFORE}([01]?\d|2[0-3])\s?h\s?([0-5]\d)(?!\w|[.,]\d)")
        yield pattern, lambda match: (clock_words(table, int(match[1]), int(match[2])),)


def _days_of_months(table: SpokenFormTable) -> Iterator[Step]:
    """Yields the replacement of `1 mai` or `May 5`, where the day is not said as a number."""
    months = "|".join(table.dates.months)
    if table.dates.short_form.startswith("{month}"):
        pattern = re.compile(rf"(?<!\w)({months}) ([12]?\d|3[01])(?![\w:%/-]|[.,]\d)")
        yield pattern, lambda match: (1, f" {_day(table, int(match[2]), '')}")
    elif table.dates.days:
        pattern = re.compile(rf"{_NO_NUMBER_BEFORE}([12]?\d|3[01])(?=\s(?:{months})(?!\w))")
        yield pattern, lambda match: (_day(table, int(match[1]), ""),)


def _ordinals(table: SpokenFormTable) -> Iterator[Step]:
    if table.ordinals.words and table.months and not table.dates.days:
        nouns = "|".join(table.months)
        pattern = re.compile(
            rf"{_NO_NUMBER_BEFORE}([1-9]\d?)\.\s?(?=(?:{nouns})(?!\w))", re.IGNORECASE
        )
        yield pattern, lambda match: (_ordinal(table, match), " ")
    if table.ordinals.written:
        suffixes = "|".join(map(re.escape, table.ordinals.written))
        pattern = re.compile(rf"{_NO_NUMBER_BEFORE}([1-9]\d?)(?:{suffixes})(?!\w)")
        yield pattern, lambda match: (_ordinal(table, match),)


def _ordinal(table: SpokenFormTable, match: re.Match[str]) -> str:
    return ordinal_words(table, int(match[1]), match.string[: match.start()])


def _words(words: str) -> Replacement:
    return lambda _: (words,)


def _roman_numerals(table: SpokenFormTable) -> Iterator[Step]:
    if table.before_roman:
        nouns = "|".join(map(re.escape, table.before_roman))
        pattern = re.compile(rf"(?<!\w)((?i:{nouns})\s){_ROMAN}(?!\w)")
        yield pattern, lambda match: (1, str(_roman(match[2])))
    if table.after_roman:
        nouns = "|".join(map(re.escape, table.after_roman))
        pattern = re.compile(rf"(?<!\w){_ROMAN}(e|\.)?(?=\s(?i:{nouns})(?!\w))")
        yield pattern, lambda match: (ordinal_words(table, _roman(match[1])),)


def _roman(numeral: str) -> int:
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    later = [*values[1:], 0]
    return sum(
        -value if value < after else value for value, after in zip(values, later, strict=True)
    )


def _range(table: SpokenFormTable, match: re.Match[str]) -> tuple[TextPiece, ...]:
    if int(match[1]) >= int(match[2]):
        return (0,)
    return (1, f" {table.range} ", 2)


def _joined(match: re.Match[str]) -> tuple[TextPiece, ...]:
    return ("".join(char for char in match[0] if char.isdigit()),)
