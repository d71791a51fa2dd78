"""Error rates of recognised text, by words and by characters, raw and normalised."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from whisper_normalizer.basic import BasicTextNormalizer
from whisper_normalizer.english import EnglishTextNormalizer

from bench.tools.word_errors import NOTHING, Pair, align_words


@dataclass(frozen=True, slots=True)
class ScoredText:
    """Reference and hypothesis of one recording, cut into words or characters."""

    id: str
    reference: Sequence[str]
    hypothesis: Sequence[str]

    def aligned(self) -> list[Pair]:
        """Returns the alignment of reference and hypothesis."""
        return align_words(self.reference, self.hypothesis)


@dataclass(frozen=True, slots=True)
class ErrorCounts:
    """Sums of errors over recordings."""

    insertions: int = 0
    deletions: int = 0
    substitutions: int = 0
    correct: int = 0

    @property
    def total(self) -> int:
        return self.insertions + self.deletions + self.substitutions

    @property
    def reference_length(self) -> int:
        """Number of words or characters in the references."""
        return self.deletions + self.substitutions + self.correct

    @property
    def percent(self) -> float:
        """Error rate; 100 when the reference is empty and the hypothesis is not. More than 100 is
        possible."""
        if not self.reference_length:
            return 100.0 if self.total else 0.0
        return 100 * self.total / self.reference_length


def errors_of(texts: Iterable[ScoredText]) -> ErrorCounts:
    """Counts the errors of all recordings together, so long recordings count more, as is usual."""
    insertions = deletions = substitutions = correct = 0
    for text in texts:
        for reference, hypothesis in text.aligned():
            insertions += reference == NOTHING
            deletions += hypothesis == NOTHING
            substitutions += NOTHING not in {reference, hypothesis} and reference != hypothesis
            correct += reference == hypothesis
    return ErrorCounts(insertions, deletions, substitutions, correct)


def words(text: str) -> list[str]:
    """Splits a text into the units of WER."""
    return text.split()


def characters(text: str) -> list[str]:
    """Splits a text into the units of CER, without blanks."""
    return list("".join(text.split()))


def normalised(text: str, language: str | None) -> str:
    """Normalises a text as Whisper does: case, punctuation, and in English also spelling and
    numbers."""
    clean = _english() if language == "en" else _basic()
    return " ".join(str(clean(text)).split())


@cache
def _english() -> EnglishTextNormalizer:
    return EnglishTextNormalizer()


@cache
def _basic() -> BasicTextNormalizer:
    return BasicTextNormalizer()


def kept_words(shown: Sequence[str], final: str) -> tuple[int, int]:
    """Counts words of partials that were in the same place in the next partial or final text.

    Returns (kept words, all words of the partials). shown: the partials in order.
    """
    kept = total = 0
    for earlier, later in pairwise([*shown, final]):
        before, after = list(_bare(earlier)), list(_bare(later))
        kept += sum(map(str.__eq__, before, after))
        total += len(before)
    return kept, total


def _bare(text: str) -> Iterator[str]:
    """Yields words without case and punctuation, which may change with the following words."""
    for word in text.casefold().split():
        if bare := word.strip(".,;:!?…\"'()-"):
            yield bare
