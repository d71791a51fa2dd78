"""Markdown as a person would read it aloud. Pure, clause by clause: an open mark is not read."""

import re
from html import unescape

from pipeline.speech.normalize.mapped_text import FIRST_GROUP, NOTHING, SPACE, MappedText

FENCE = re.compile(r"^\s*(`{3,}|~{3,})(?!.*`{3})")

_QUOTE = re.compile(r"^\s*(?:>\s?)+")
_HEADING = re.compile(r"^\s*#{1,6}\s+")
_HEADING_END = re.compile(r"\s+#+\s*$")
_BULLET = re.compile(r"^\s*[-*+•‣◦·–—]\s+(?:\[[ xX]\]\s+)?")
_NUMBER = re.compile(r"^\s*(\d{1,3})[.)]\s+(?=(\S+))")
_RULE = re.compile(r"^\s*(?:[-*_=]\s*){3,}$")
_TABLE_RULE = re.compile(r"^\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-*:?\s*)*\|?\s*$")
_TABLE_EDGE = re.compile(r"^\s*\|\s*|\s*\|\s*$")
_TABLE_CELL = re.compile(r"\s*\|\s*")

_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_NOTE = re.compile(r"\[\^[^\]]+\]:?|(?<=\S)\[\d+(?:[,–-]\s?\d+)*\](?!\()")
_LINK = re.compile(
    r"!?\[([^\[\]]*)\](?:\((?:[^()\s]|\([^()]*\))*(?:\s+[\"'][^\"']*[\"'])?\)|\[[^\]]*\])"
)
_CUT_LINK = re.compile(r"\]\([^\s)]*\)?|[\[\]]")
_AUTOLINK = re.compile(r"<((?:https?://|mailto:)?[^<>@\s]+[@.:][^<>\s]+)>")
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][a-zA-Z0-9]*(?:\s[^<>]*)?/?>|<!--.*?-->")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-zA-Z]{2,31});")
_CODE = re.compile(r"`+")
_STRONG = re.compile(r"\*{2,}|~~|(?<!\w)_{2,}|_{2,}(?!\w)")
_EMPHASIS = re.compile(
    r"(?<![\w*])\*(?=[^\s*])|(?<=[^\s*])\*(?![\w*])|(?<!\w)_(?=\S)|(?<=\S)_(?!\w)"
)
_SNAKE = re.compile(r"(?<=\w)_+(?=\w)")


def read_block(line: MappedText, months: frozenset[str]) -> MappedText:
    """Returns a line without its markup for a heading, a list item or a table row.

    Such a line gets a full stop. months: words before which a number is a date, not a list item
    (`3. Mai`).
    """
    if _RULE.match(line.text) or _TABLE_RULE.match(line.text):
        return MappedText("", ())
    line = line.sub(_QUOTE, NOTHING)
    is_row = line.text.lstrip().startswith("|") or " | " in line.text
    bare = line.sub(_TABLE_EDGE, NOTHING).sub(_TABLE_CELL, lambda _: (", ",)) if is_row else line
    bare = bare.sub(_HEADING, NOTHING).sub(_BULLET, NOTHING)
    bare = bare.sub(_NUMBER, lambda m: (0,) if m[2].strip(".,").lower() in months else (1, ": "))
    if bare.text == line.text:
        return line
    return _ended(bare.sub(_HEADING_END, NOTHING))


def read_links(text: MappedText) -> MappedText:
    """Replaces links by their text. Must run before addresses are read."""
    text = text.sub(_ESCAPE, FIRST_GROUP).sub(_NOTE, NOTHING)
    text = text.sub(_LINK, FIRST_GROUP).sub(_LINK, FIRST_GROUP)  # an image may be a link's text
    return text.sub(_CUT_LINK, NOTHING).sub(_AUTOLINK, FIRST_GROUP)


def read_marks(text: MappedText) -> MappedText:
    """Removes emphasis, code spans and tags, and decodes entities, wherever they begin or end."""
    text = text.sub(_BREAK, SPACE).sub(_TAG, NOTHING).sub(_ENTITY, lambda m: (unescape(m[0]),))
    text = text.sub(_CODE, NOTHING).sub(_STRONG, NOTHING).sub(_EMPHASIS, NOTHING)
    return text.sub(_SNAKE, SPACE)


def _ended(line: MappedText) -> MappedText:
    end = len(line.text.rstrip())
    if not end or not (line.text[end - 1].isalnum() or line.text[end - 1] in "\"')»”%°*_`"):
        return line
    return MappedText(line.text[:end] + ".", (*line.places[:end], line.places[end - 1]))
