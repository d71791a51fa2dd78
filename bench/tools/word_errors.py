"""Words of a transcript, and how many of them a recogniser got wrong."""

import re
from collections.abc import Sequence

from kaldialign import align

_WORD = re.compile(r"[a-z0-9']+")

NOTHING = "*"
"Stands for no word in an alignment, as in the Triton ASR client's reports."

Pair = tuple[str, str]
"What was said and what was heard for it; one of them may be NOTHING."


def spoken_words(text: str) -> list[str]:
    """Lower case, without punctuation: two transcripts of the same words are equal."""
    return _WORD.findall(text.lower())


def word_errors(said: Sequence[str], heard: Sequence[str]) -> int:
    """Words to change, add or drop (Levenshtein distance)."""
    return sum(one != other for one, other in aligned(said, heard))


def aligned(said: Sequence[str], heard: Sequence[str]) -> list[Pair]:
    """The cheapest way from one to the other, pair by pair."""
    pairs: list[Pair] = align(said, heard, NOTHING)
    return pairs


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of a sorted, non-empty sequence does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
