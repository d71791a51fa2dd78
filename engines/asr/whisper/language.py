"""Which language is spoken, among all that a model knows or those that the caller listed."""

from collections.abc import Sequence
from typing import NamedTuple


class LanguageDetection(NamedTuple):
    language: str
    probability: float


def choose(candidates: Sequence[tuple[str, float]], allowed: Sequence[str]) -> LanguageDetection:
    """The likeliest. `candidates` are CTranslate2's tokens; with `allowed`, the probability is that
    among those."""
    found = [
        LanguageDetection(token.strip("<|>"), probability) for token, probability in candidates
    ]
    listed = [spoken for spoken in found if spoken.language in allowed] or found
    best = max(listed, key=lambda spoken: spoken.probability)
    total = sum(spoken.probability for spoken in listed) if allowed else 1.0
    return LanguageDetection(best.language, best.probability / total if total else 1 / len(listed))
