"""Detection of the language that a text is written in, for callers that do not name it.

py3langid is loaded at its first use (1 s, 100 MB).
"""

import threading
from collections.abc import Collection
from functools import cache
from typing import Protocol

from core.tasks import run_in_thread

_WEST = ("cs", "da", "de", "en", "es", "fi", "fr", "hu", "id", "it", "nl", "no", "pl", "pt", "ro")
_FURTHER = ("ar", "el", "fa", "he", "hi", "ja", "ko", "ru", "sv", "tr", "uk", "vi", "zh")

WIDESPREAD = frozenset((*_WEST, *_FURTHER))
"""Languages that py3langid chooses from. With all of its hundred, a short text is often taken for a
rare language. A caller that uses one of those names it."""

MIN_LEAD = 8.0
"""Least log-likelihood ratio between another language and the usual one. `OK` and `Willow` are
below it. `Das ist gut.`, with English as the usual language, is at 22."""

MAX_CHARS = 1000
"Most characters that are looked at. More do not make the result better."


class _LanguageClassifier(Protocol):
    def rank(self, text: str) -> list[tuple[str, float]]: ...


class TextLanguageDetector:
    """Detects the language of texts; thread-safe, shared by all callers."""

    async def detect(self, text: str, usual: str, known: Collection[str] = ()) -> str:
        """Returns the language of `text` as a code out of `known` (empty: any).

        Returns `usual` unless another language is clearly more likely.
        """
        if not any(char.isalpha() for char in text):
            return usual
        return await run_in_thread(self._of, text[:MAX_CHARS], usual, known)

    def _of(self, text: str, usual: str, known: Collection[str]) -> str:
        with _one_at_a_time:
            ranks = dict(_classifier().rank(text))
        least = ranks.get(usual)
        if least is None:  # the detector does not know the usual language, so it cannot compare
            return usual
        allowed = {code: rank for code, rank in ranks.items() if code in known or not known}
        best = max(allowed, key=lambda code: allowed[code], default=usual)
        return best if ranks.get(best, least) - least >= MIN_LEAD else usual


_one_at_a_time = threading.Lock()
"A classifier is not thread-safe."


@cache  # loading takes a second of processor time
def _classifier() -> _LanguageClassifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    found = LanguageIdentifier.from_model_file(MODEL_FILE)
    found.set_languages(WIDESPREAD & set(found.labels))
    ranks: _LanguageClassifier = found
    return ranks
