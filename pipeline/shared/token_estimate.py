"""Estimates how many tokens texts and tools are, without the tokenizer of a model. Pure."""

import re
from collections.abc import Sequence
from math import ceil

import msgspec

from core.ports import ToolSpec

CALL_TOKENS = 12
"Tokens that templates put around a tool call."

_PLAIN = re.compile(rb"[A-Za-z ]+")


def text_tokens(text: str) -> int:
    """Returns an estimate of a text's tokens, rather too high than too low; no tokenizer is used.

    Latin letters: 2.5 to a token, as for compounds in small vocabularies; English has 4. Digits and
    punctuation: one token each. Beyond ASCII, two thirds of the UTF-8 bytes: 2 tokens for a Chinese
    character and 1.3 for a Cyrillic or accented letter. GPT-2's vocabulary, the poorest in use,
    needs a third more for Korean and no more for the rest; those of today's models need half.
    """
    data = text.encode(errors="replace")
    ascii_data = data if text.isascii() else text.encode("ascii", errors="ignore")
    other_ascii = len(_PLAIN.sub(b"", ascii_data))
    plain, beyond = len(ascii_data) - other_ascii, len(data) - len(ascii_data)
    return ceil(plain / 2.5) + other_ascii + ceil(beyond / 1.5)


def tools_tokens(tools: Sequence[ToolSpec]) -> int:
    """Returns an estimate of the tokens of tool declarations, which each request has besides
    messages."""
    return sum(
        CALL_TOKENS + text_tokens(tool.name + tool.description) + json_tokens(dict(tool.parameters))
        for tool in tools
    )


def json_tokens(value: object) -> int:
    return text_tokens(msgspec.json.encode(value).decode())
