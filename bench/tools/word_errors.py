"""Words of a transcript, and the number of errors of a recogniser."""

import re
from collections.abc import Sequence

from kaldialign import align

_WORD = re.compile(r"[a-z0-9']+")

NOTHING = "*"
"Stands for no word in an alignment, as in the Triton ASR client's reports."

Pair = tuple[str, str]
"Reference word and recognised word; one of them may be NOTHING."


def spoken_words(text: str) -> list[str]:
    """Returns the words in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def word_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Returns the number of words to change, add or drop (Levenshtein distance)."""
    return sum(expected != other for expected, other in aligned(reference, hypothesis))


def aligned(reference: Sequence[str], hypothesis: Sequence[str]) -> list[Pair]:
    """Returns the alignment with the fewest errors, pair by pair."""
    pairs: list[Pair] = align(reference, hypothesis, NOTHING)
    return pairs


def quantile(ordered: Sequence[float], share: float) -> float:
    """Returns the value that `share` of a sorted, non-empty sequence does not exceed."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
