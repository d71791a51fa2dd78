"""Trigram model of the sentences that the assistant understands, small enough to train at start.

It uses interpolated absolute discounting, which needs one constant and no held-out text. Word
sequences that were not trained get low probabilities, on which the rejection of speech relies.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log10
from pathlib import Path

NGram = tuple[str, ...]
"Some words in a row, as they are counted."

START, END = "<s>", "</s>"
_ORDER = 3
_DISCOUNT = 0.6
"Part of each count that is given to the shorter context; 0.5 to 0.75 decode equally well."
_LOG10_NEVER = -99.0
"log10 probability of a sentence start as a word, which the format demands but is never spoken."


class TrigramModel:
    """log10 probabilities of n-grams of up to three words, with back-off weights.

    sentences: training text, words separated by spaces; a repeated sentence counts more.
    """

    def __init__(self, sentences: Iterable[str]) -> None:
        counts = _count(sentences)
        self.vocabulary = frozenset(gram[0] for gram in counts[0]) - {START, END}
        self._log10: list[dict[NGram, float]] = []
        self._backoff: dict[NGram, float] = {}
        lower_order = _unigrams(counts[0])
        for order in range(_ORDER):
            if order:
                lower_order = self._interpolate(counts[order], lower_order)
            self._log10.append({gram: log10(p) for gram, p in lower_order.items()})
        self._log10[0][(START,)] = _LOG10_NEVER

    def log10(self, word: str, history: Sequence[str]) -> float:
        """Returns log10 P(word | last two words of history). Raises KeyError if unknown."""
        penalty = 0.0
        for length in range(_ORDER - 1, 0, -1):
            context = tuple(history[-length:])
            if len(context) < length:
                continue
            if (probability := self._log10[length].get((*context, word))) is not None:
                return penalty + probability
            penalty += self._backoff.get(context, 0.0)
        return penalty + self._log10[0][(word,)]

    def mean_log10(self, words: Sequence[str], *, is_whole: bool) -> float:
        """Returns the log10 probability per word of a sentence; it must not be empty.

        is_whole: False for the beginning of a sentence.
        """
        history, total = [START], 0.0
        tokens = (*words, END) if is_whole else words
        for word in tokens:
            total += self.log10(word, history)
            history.append(word)
        return total / len(tokens)

    def write_arpa(self, path: Path) -> None:
        """Writes the model in the ARPA format, which PocketSphinx reads."""
        lines = ["\\data\\"]
        lines += [f"ngram {n}={len(grams)}" for n, grams in enumerate(self._log10, start=1)]
        for n, grams in enumerate(self._log10, start=1):
            lines += ["", f"\\{n}-grams:"]
            for gram, probability in sorted(grams.items()):
                line = f"{probability:.4f}\t{' '.join(gram)}"
                if n < _ORDER:
                    line += f"\t{self._backoff.get(gram, 0.0):.4f}"
                lines.append(line)
        path.write_text("\n".join([*lines, "", "\\end\\", ""]), encoding="utf-8")

    def _interpolate(
        self, counts: Mapping[NGram, int], lower_order: Mapping[NGram, float]
    ) -> dict[NGram, float]:
        totals, distinct_counts = Counter[NGram](), Counter[NGram]()
        for gram, count in counts.items():
            totals[gram[:-1]] += count
            distinct_counts[gram[:-1]] += 1
        freed_mass = {
            context: _DISCOUNT * distinct_counts[context] / totals[context] for context in totals
        }
        self._backoff.update((context, log10(mass)) for context, mass in freed_mass.items())
        return {
            gram: (count - _DISCOUNT) / totals[gram[:-1]]
            + freed_mass[gram[:-1]] * lower_order[gram[1:]]
            for gram, count in counts.items()
        }


def _count(sentences: Iterable[str]) -> list[Counter[NGram]]:
    counts = [Counter[NGram]() for _ in range(_ORDER)]
    for sentence, repetitions in Counter(sentences).items():
        words = [START, *sentence.split(), END]
        for order in range(_ORDER):
            for gram in zip(*(words[i:] for i in range(order + 1)), strict=False):
                counts[order][gram] += repetitions
    return counts


def _unigrams(counts: Mapping[NGram, int]) -> dict[NGram, float]:
    """Returns discounted probabilities; the freed part is spread evenly over the vocabulary."""
    spoken = {gram: count for gram, count in counts.items() if gram != (START,)}
    total = sum(spoken.values())
    even_share = _DISCOUNT * len(spoken) / total / len(spoken)
    return {gram: (count - _DISCOUNT) / total + even_share for gram, count in spoken.items()}
