"""Words of a transcript, and how many of them a recogniser got wrong."""

import re
from collections.abc import Sequence

_WORD = re.compile(r"[a-z0-9']+")


def spoken_words(text: str) -> list[str]:
    """Lower case, without punctuation: two transcripts of the same words are equal."""
    return _WORD.findall(text.lower())


def word_errors(said: Sequence[str], heard: Sequence[str]) -> int:
    """Words to change, add or drop (Levenshtein distance)."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, start=1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(heard, start=1):
            cost = min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
            diagonal, row[j] = row[j], cost
    return row[-1]


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of a sorted, non-empty sequence does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
