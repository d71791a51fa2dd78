"""Colours of text on a terminal."""

from collections.abc import Mapping
from typing import Literal, TextIO

Style = Literal["bold", "red", "green", "yellow"]

_CODES: Mapping[Style, int] = {"bold": 1, "red": 31, "green": 32, "yellow": 33}


def has_colours(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Returns True if text in `stream` may be coloured: it is a terminal, and the user does not
    forbid it (https://no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def styled(text: str, style: Style) -> str:
    """Returns the text with the codes that a terminal needs to show it in this style."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"
