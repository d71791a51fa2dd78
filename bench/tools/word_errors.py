"""Counts the word errors of a recogniser."""

import re
from collections.abc import Sequence

from kaldialign import align

_WORD = re.compile(r"[a-z0-9']+")

NOTHING = "*"
"Placeholder for a missing word in an alignment, as in the Triton ASR client's reports."

Pair = tuple[str, str]
"Reference word and recognised word; one of them may be NOTHING."


def spoken_words(text: str) -> list[str]:
    """Returns the English words of a text in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def word_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Returns the number of words to change, add or drop (Levenshtein distance)."""
    return sum(expected != other for expected, other in align_words(reference, hypothesis))


def align_words(reference: Sequence[str], hypothesis: Sequence[str]) -> list[Pair]:
    """Returns the alignment with the fewest errors: words side by side, in order."""
    pairs: list[Pair] = align(reference, hypothesis, NOTHING)
    return pairs


def quantile(ordered: Sequence[float], share: float) -> float:
    """Returns the value that a share of the others does not exceed.

    ordered: sorted values, at least one. share: 0 to 1.
    """
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
