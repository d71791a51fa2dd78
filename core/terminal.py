"""Codes with which a terminal shows text in a style, or writes a line again (ECMA-48)."""

from collections.abc import Mapping
from typing import Literal, TextIO

Style = Literal["bold", "faint", "red", "green", "yellow"]

_CODES: Mapping[Style, int] = {"bold": 1, "faint": 2, "red": 31, "green": 32, "yellow": 33}

CLEAR_LINE = "\r\x1b[K"
"Puts the cursor at the beginning of the line, and clears the line."


def has_colours(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Returns True if text in `stream` may be coloured: it is a terminal, and the user does not
    forbid it (https://no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def styled(text: str, style: Style) -> str:
    """Returns the text with the codes that a terminal needs to show it in this style."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"
