"""How much of a text was heard wrong: words and characters, as they are and normalised."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

from bench.tools.word_errors import NOTHING, Pair, aligned


@dataclass(frozen=True, slots=True)
class ScoredText:
    """One recording's reference and hypothesis, cut into what is compared."""

    id: str
    said: Sequence[str]
    heard: Sequence[str]

    def aligned(self) -> list[Pair]:
        return aligned(self.said, self.heard)


@dataclass(frozen=True, slots=True)
class ErrorCounts:
    """Sums over recordings."""

    insertions: int = 0
    deletions: int = 0
    substitutions: int = 0
    correct: int = 0

    @property
    def total(self) -> int:
        return self.insertions + self.deletions + self.substitutions

    @property
    def said(self) -> int:
        """Words or characters of the references."""
        return self.deletions + self.substitutions + self.correct

    @property
    def percent(self) -> float:
        """100 when nothing was said and something heard; more than 100 is possible."""
        if not self.said:
            return 100.0 if self.total else 0.0
        return 100 * self.total / self.said


def errors_of(heard: Iterable[ScoredText]) -> ErrorCounts:
    """All errors together: long recordings count more, as is usual."""
    insertions = deletions = substitutions = correct = 0
    for one in heard:
        for said, got in one.aligned():
            insertions += said == NOTHING
            deletions += got == NOTHING
            substitutions += NOTHING not in {said, got} and said != got
            correct += said == got
    return ErrorCounts(insertions, deletions, substitutions, correct)


def words(text: str) -> list[str]:
    """What WER compares."""
    return text.split()


def characters(text: str) -> list[str]:
    """What CER compares: blanks do not count."""
    return list("".join(text.split()))


def normalised(text: str, language: str | None) -> str:
    """Whisper's own normalisation: case, punctuation, and in English also spelling and numbers."""
    clean = _english() if language == "en" else _basic()
    return " ".join(str(clean(text)).split())


@cache
def _english() -> EnglishTextNormalizer:
    return EnglishTextNormalizer()


@cache
def _basic() -> BasicTextNormalizer:
    return BasicTextNormalizer()


def kept_words(shown: Sequence[str], final: str) -> tuple[int, int]:
    """How many words of partials were still in their place in what came next, and of how many.

    What comes after the last partial is the final text.
    """
    kept = total = 0
    for earlier, later in pairwise([*shown, final]):
        before, after = list(_bare(earlier)), list(_bare(later))
        kept += sum(map(str.__eq__, before, after))
        total += len(before)
    return kept, total


def _bare(text: str) -> Iterator[str]:
    """Words without case and punctuation: these change with what follows, and nobody minds."""
    for word in text.casefold().split():
        if bare := word.strip(".,;:!?…\"'()-"):
            yield bare
