"""Which language a text is written in, for callers that do not say: py3langid, loaded when first
asked (1 s, 100 MB)."""

import threading
from collections.abc import Collection
from typing import Protocol

from core.tasks import run_in_thread

_WEST = ("cs", "da", "de", "en", "es", "fi", "fr", "hu", "id", "it", "nl", "no", "pl", "pt", "ro")
_FURTHER = ("ar", "el", "fa", "he", "hi", "ja", "ko", "ru", "sv", "tr", "uk", "vi", "zh")

WIDESPREAD = frozenset((*_WEST, *_FURTHER))
"""Told apart from a few words. Of all hundred that there are, a short text is often taken for a
rare one; whoever speaks one of those says so."""

MIN_LEAD = 8.0
"""Logarithm of how much likelier another language than the usual one must be. `OK` and `Willow`
are below, `Das ist gut.` beside English is at 22."""

MAX_CHARS = 1000
"More tell no more."


class _LanguageClassifier(Protocol):
    def rank(self, text: str) -> list[tuple[str, float]]: ...


class TextLanguageDetector:
    """Guesses for everybody; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identifier: _LanguageClassifier | None = None

    async def of(self, text: str, usual: str, known: Collection[str] = ()) -> str:
        """One of `known` (empty: any), or `usual` where the text does not clearly say another."""
        if not any(char.isalpha() for char in text):
            return usual
        return await run_in_thread(self._of, text[:MAX_CHARS], usual, known)

    def _of(self, text: str, usual: str, known: Collection[str]) -> str:
        with self._lock:
            if self._identifier is None:
                self._identifier = _load()
            ranks = dict(self._identifier.rank(text))
        least = ranks.get(usual)
        if least is None:  # a language that it cannot tell from others
            return usual
        allowed = {code: rank for code, rank in ranks.items() if code in known or not known}
        best = max(allowed, key=lambda code: allowed[code], default=usual)
        return best if ranks.get(best, least) - least >= MIN_LEAD else usual


def _load() -> _LanguageClassifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    found = LanguageIdentifier.from_model_file(MODEL_FILE)
    found.set_languages(WIDESPREAD & set(found.labels))
    ranks: _LanguageClassifier = found
    return ranks
