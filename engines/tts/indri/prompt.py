"""Prompt of a speech: the text as the model was trained to read it, and the speaker."""

import re
from collections.abc import Sequence

from engines.tts.indri.token_layout import IndriTokenizer, TokenLayout

MAX_CLAUSE_CHARS = 100
"""Longest text of one prompt. Prompt and speech share the model's 1024 positions, and a second of
speech takes a hundred. A letter of Hindi is up to three tokens."""

_MARKUP = re.compile(r"[\[\]<>|]")
"Characters of which markers are made. A text must not contain a marker."

_REPEATED = re.compile(r"([,.?])(?:\s*\1)+")
"Punctuation that is written several times."


def clean_text(text: str) -> str:
    """Returns the text in the form of the training texts: lower case, single spaces, no repeated
    punctuation. Characters of markers become spaces."""
    lower = _MARKUP.sub(" ", text).lower()
    return " ".join(_REPEATED.sub(r"\1", lower).split())


def speech_prompt(
    text: str, speaker: int, layout: TokenLayout, tokenizer: IndriTokenizer
) -> list[int]:
    """Returns the ids after which the model writes the speech. `text`: from `clean_text`."""
    words = tokenizer.encode(text, add_special_tokens=False).ids
    assert all(one < layout.first_audio for one in words), "clean_text left a marker"
    return [layout.text, *words, layout.convert, layout.mimi, speaker]


def max_speech_ids(prompt: Sequence[int], context: int, limit: int, codebooks: int) -> int:
    """Returns how many ids a speech may have: whole frames, at most `limit` ids, within the
    `context` positions of the model. 0: the prompt leaves no room."""
    return max(0, min(limit, context - len(prompt))) // codebooks * codebooks
