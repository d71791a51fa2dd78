"""Numbers and switches in the forms that Willow's clients use: in a query, a header or a JSON
object."""

from collections.abc import Collection, Mapping

from core.errors import RequestError

_SWITCHES: Mapping[str, bool] = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}

MAX_SHOWN_CHARS = 60
"Limit of a wrong value that an error repeats: a response to a device has 2 KB."


def text_of(values: Mapping[str, object], name: str) -> str:
    """Returns the text; empty when it is absent, empty or null. Raises RequestError for other
    types."""
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str | int | float):
        raise invalid(name, value, "text")
    return str(value).strip()


def switch_of(values: Mapping[str, object], name: str, *, default: bool = False) -> bool:
    """Returns a switch (true, 1, yes, on, ...). Raises RequestError."""
    text = text_of(values, name)
    found = _SWITCHES.get(text.lower()) if text else default
    if found is None:
        raise invalid(name, text, "true or false")
    return found


def whole_of(
    values: Mapping[str, object], name: str, allowed: range | Collection[int]
) -> int | None:
    """Returns a whole number; None when it is absent. Raises RequestError."""
    text = text_of(values, name)
    if not text:
        return None
    # Eleven digits hold all allowed values; int() of a million digits takes a second.
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
    if number is None or number not in allowed:
        raise invalid(name, text, allowed_text(allowed))
    return number


def number_of(values: Mapping[str, object], name: str, low: float, high: float) -> float | None:
    """Returns a number from `low` to `high`; None when it is absent. Raises RequestError."""
    text = text_of(values, name)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise invalid(name, text, f"{low:g} to {high:g}")
    return number


def allowed_text(allowed: range | Collection[object]) -> str:
    """Returns the allowed values as a text for an error."""
    if isinstance(allowed, range):
        return f"{allowed[0]} to {allowed[-1]}"
    return ", ".join(str(value) for value in allowed)


def invalid(name: str, value: object, allowed: str, *, code: str = "invalid_value") -> RequestError:
    """Returns the error for a wrong value."""
    shown = shortened(str(value), MAX_SHOWN_CHARS)
    return RequestError(f"{name} is {shown!r}; allowed: {allowed}", code=code, param=name)


def shortened(text: str, max_chars: int) -> str:
    """Returns at most `max_chars` characters, the last an ellipsis if the text was cut."""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
