"""Removal of emoji and shortening of addresses, which no voice reads well. Pure."""

import re

from pipeline.speech.normalize.mapped_text import FIRST_GROUP, NOTHING, SPACE, MappedText

_PICTURES = (
    "\U0001f000-\U0001faff"  # pictures, flags, playing cards
    "\u2600-\u27bf"  # weather, hands, check marks, dingbats
    "\u2b00-\u2bff\u23e9-\u23fa\u231a\u231b\u25a0-\u25ff\u3030\u303d\u3297\u3299"
    "\u00a9\u00ae\u2122"  # copyright and trade mark signs
)
_STYLES = "\ufe0e\ufe0f\u20e3"
_EMOJI_TEXT = f"(?:[{_PICTURES}][{_PICTURES}{_STYLES}\u200d\U000e0020-\U000e007f]*|[{_STYLES}]+)"
"Emoji sequences. U+200D joins pictures here; between letters, in Indian scripts, it shapes a word."
_EMOJI_AT_END = re.compile(rf"\s*{_EMOJI_TEXT}(?=\s|[.,;:!?…)\"'*_]|$)")
_EMOJI = re.compile(_EMOJI_TEXT)
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")

_URL = re.compile(
    r"(?:https?|ftp|wss?)://(?:[^\s/@]*@)?(?:www\.)?([\w-]+(?:\.[\w-]+)*)(?::\d+)?"
    r"(?:[/?#](?:[^\s<>\"'`\]]*[\w/=&#~-])?)?",
    re.IGNORECASE,
)
_BARE_URL = re.compile(
    r"(?<![\w@./-])(?:www\.)?((?:[\w-]+\.)+[a-z]{2,})(?:/[^\s<>\"'`\]]*[\w/=&#~-]|/)?(?![\w@])"
)
_MAILTO = re.compile(r"\bmailto:")
_SPACES = re.compile(r"\s{2,}|[^\S ]")
_SPACE_BEFORE_STOP = re.compile(r"\s+(?=[.,](?:\s|$))")


def read_addresses(text: MappedText) -> MappedText:
    """Shortens addresses to the host: `https://www.example.com/a?b=c` becomes example.com."""
    return text.sub(_MAILTO, NOTHING).sub(_URL, FIRST_GROUP).sub(_BARE_URL, FIRST_GROUP)


def drop_emoji(text: MappedText) -> MappedText:
    """Removes emoji and invisible characters."""
    return text.sub(_INVISIBLE, NOTHING).sub(_EMOJI_AT_END, NOTHING).sub(_EMOJI, SPACE)


def tidy(text: MappedText) -> MappedText:
    """Reduces white space to single spaces, none at the ends. Without any word: empty."""
    text = text.sub(_SPACES, SPACE).sub(_SPACE_BEFORE_STOP, NOTHING)
    if not any(char.isalnum() for char in text.text):
        return MappedText("", ())
    start = len(text.text) - len(text.text.lstrip())
    return text.part(start, len(text.text.rstrip()))
