"""The element `<say-as>`: text as the words that its kind asks for. Pure.

In a language without a table, ordinal numbers, dates and times are left to the voice.
"""

import re
from collections.abc import Mapping

from core.errors import RequestError
from pipeline.speech.normalize.numbers import clock_words, date_words, ordinal_words, phone_words
from pipeline.speech.normalize.table import LANGUAGES, SpokenFormTable, spoken_form_table
from pipeline.speech.ssml.manner import INVALID_SSML, wrong_value

SPELLED = frozenset(("characters", "spell-out", "verbatim"))
PLAIN = frozenset(("address", "cardinal", "currency", "expletive", "fraction", "name", "unit"))
"Kinds that voices read themselves, or with the steps that every text takes."
KINDS = frozenset((*SPELLED, *PLAIN, "number", "digits", "telephone", "ordinal", "date", "time"))

DATE_ORDERS = frozenset(("ymd", "ydm", "mdy", "dmy", "md", "dm", "ym", "my", "y", "m", "d"))
"Values of `format` for dates."

_TIME = re.compile(r"(\d{1,2})[:.hH]([0-5]\d)(?::[0-5]\d)?\s*(.*)")
_MAX_MONTH, _MAX_DAY, _MAX_HOUR = 12, 31, 23


def say_as(text: str, attributes: Mapping[str, str], language: str) -> str:
    """Returns the words for the text of a `<say-as>` element. Raises RequestError for a kind that
    does not exist.

    language: ISO 639-1; empty: not known. A text that is not of its kind is returned as it is.
    """
    text = " ".join(text.split())
    kind = attributes.get("interpret-as", "").strip().lower()
    table = spoken_form_table(language) if language in LANGUAGES else None
    if kind not in KINDS:
        if not kind:
            raise RequestError("SSML: <say-as> without interpret-as", code=INVALID_SSML)
        raise wrong_value("interpret-as", kind, ", ".join(sorted(KINDS)))
    if kind in SPELLED:
        return _spelled(text, table)
    if kind == "digits":
        return " ".join(char for char in text if char.isdigit()) or text
    if kind == "telephone":
        return phone_words(text, table.before_number["+"] if table else "+") or text
    if table is None:
        return text
    written_form = attributes.get("format", "").strip().lower()
    if kind == "ordinal" or (kind == "number" and written_form == "ordinal"):
        digits = text.rstrip(".")
        return ordinal_words(table, int(digits)) if _is_number(digits) else text
    if kind == "date":
        return _date(text, written_form, table)
    return _time(text, table) if kind == "time" else text


def _spelled(text: str, table: SpokenFormTable | None) -> str:
    """Returns characters one by one. A voice reads capital letters by their names."""
    names = table.symbols if table else {}
    return ", ".join(names.get(char, char.upper()) for char in text if not char.isspace())


def _date(text: str, order: str, table: SpokenFormTable) -> str:
    if order and order not in DATE_ORDERS:
        raise wrong_value("format of say-as", order, ", ".join(sorted(DATE_ORDERS)))
    numbers = re.findall(r"\d{1,4}", text)
    order = order or ("ymd" if numbers and len(numbers[0]) == len("2024") else "dmy")
    if re.search(r"[^\W\d_]", text) or len(numbers) != len(order):
        return text
    parts = dict(zip(order, map(int, numbers), strict=True))
    day, month, year = parts.get("d"), parts.get("m"), parts.get("y")
    if day is None or month is None:
        return text
    if not (1 <= month <= _MAX_MONTH and 1 <= day <= _MAX_DAY):
        return text
    return date_words(table, day, month, year)


def _time(text: str, table: SpokenFormTable) -> str:
    found = _TIME.fullmatch(text)
    if found is None or int(found[1]) > _MAX_HOUR:
        return text
    behind = found[3]
    if re.fullmatch(r"[aApP]\.?[mM]\.?", behind):
        minutes = int(found[2])
        hour = found[1].lstrip("0") or "0"
        return f"{hour}{f' {minutes}' if minutes else ''} {behind[0].upper()}M"
    said = clock_words(table, int(found[1]), int(found[2]))
    return said if behind in ("", *table.clock.words) else f"{said} {behind}"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len("1000000")
