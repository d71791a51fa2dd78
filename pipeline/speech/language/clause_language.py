"""Detection of clauses that are in another language than the rest of their text, so that a voice of
that language speaks them.

Nearly all clauses are in the language of their text, and this is seen at a few frequent words. Only
the others go to the classifier, which takes 100 MB and a second to load.
"""

import re
import tomllib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import cache
from pathlib import Path

from core.errors import RequestError
from pipeline.speech.chunker import CLOSERS, SENTENCE_ENDS
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.synthesis import PlannedClause, SpeechPlan, SpeechStep

MIN_WORDS = 4
"Fewest words of a clause in another language. A shorter one (`Joe's Pizza`) is often a name."

MIN_OWN_SHARE = 0.2
"""Share of frequent words below which a clause may be in another language. Of sentences in their
own language, half of the words are frequent ones."""

MAX_FOREIGN_LETTERS = 0.5
"Share of letters of another script above which a clause may be in another language."

LAST_LATIN = 0x24F
"Last letter of the Unicode blocks of Latin letters."

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]*)?")
_IS_NO_PROSE = re.compile(r"`|://|\bwww\.|@")
"Program code and addresses: their words belong to no language."

PlanOfLanguage = Callable[[str], SpeechPlan]
"Returns how a clause in a language is spoken (ISO 639-1). Raises RequestError if no voice does."


class ClauseLanguages:
    """Finds the language of each clause of one text.

    Example:
        languages = ClauseLanguages("en", detector)
        await languages.of("Das Wetter ist heute sehr schön.")   # "de"
    """

    def __init__(self, language: str, detector: TextLanguageDetector) -> None:
        """Takes the language of the text (ISO 639-1)."""
        self._language, self._detector = language, detector
        self._open_language: str | None = None
        "Language of the sentence that the last clause did not end. None: it ended."

    async def of(self, clause: str) -> str:
        """Returns the language of the next clause."""
        words = _WORD.findall(clause)
        if len(words) < MIN_WORDS and not _is_other_script(clause, self._language):
            found = self._open_language or self._language
        elif may_be_foreign(clause, words, self._language):
            found = await self._detector.detect(clause, self._language)
        else:
            found = self._language
        is_end = clause.rstrip(CLOSERS).endswith((*SENTENCE_ENDS, ":"))
        self._open_language = None if is_end else found
        return found


def may_be_foreign(clause: str, words: list[str], language: str) -> bool:
    """Returns whether a clause with these words may be in another language than `language`."""
    if _IS_NO_PROSE.search(clause):
        return False
    own_words = _frequent_words().get(language)
    if own_words is None or _is_other_script(clause, language):
        return _is_other_script(clause, language)
    own = sum(_is_frequent(word.lower(), own_words) for word in words)
    return own < MIN_OWN_SHARE * len(words)


async def in_own_languages(
    clauses: AsyncGenerator[SpeechStep, None],
    language: str,
    detector: TextLanguageDetector,
    plan_of_language: PlanOfLanguage,
) -> AsyncGenerator[SpeechStep, None]:
    """Yields the clauses of a text; those in another language get a plan of their own, if a voice
    speaks it. Closing it closes `clauses`.

    language: that of the text.
    """
    languages = ClauseLanguages(language, detector)
    async with aclosing(clauses):
        async for clause in clauses:
            if isinstance(clause, str) and (found := await languages.of(clause)) != language:
                yield _planned(clause, found, plan_of_language)
            else:
                yield clause


def _planned(clause: str, language: str, plan_of_language: PlanOfLanguage) -> SpeechStep:
    try:
        return PlannedClause(clause, plan_of_language(language))
    except RequestError:  # no voice speaks it: the text's own voice tries
        return clause


def _is_other_script(clause: str, language: str) -> bool:
    """Returns whether most letters are of a script that the language does not use."""
    if language not in _frequent_words():  # perhaps it uses another script itself
        return False
    letters = [char for char in clause if char.isalpha()]
    return sum(ord(char) > LAST_LATIN for char in letters) > MAX_FOREIGN_LETTERS * len(letters)


def _is_frequent(word: str, frequent: frozenset[str]) -> bool:
    word = word.replace("’", "'")
    return word in frequent or (word.partition("'")[0] + "'") in frequent


@cache
def _frequent_words() -> dict[str, frozenset[str]]:
    """Returns the frequent words of each language that has a table. All use Latin letters."""
    text = (Path(__file__).parent / "function_words.toml").read_text(encoding="utf-8")
    return {code: frozenset(words.split()) for code, words in tomllib.loads(text).items()}
