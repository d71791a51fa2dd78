"""Codes that a person says with a guarded command, and their removal from the transcript.

A code is a secret: it is taken out of the words before they reach the history, the language model,
a trace or a log.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of a transcript, or one digit of it."""

    text: str
    start: int
    end: int

    @property
    def is_digit(self) -> bool:
        return self.text.isdecimal()


@dataclass(frozen=True, slots=True)
class SpokenCodes:
    """The codes to look for in transcripts."""

    codes: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    "Name of a guard -> its code: digits, or one word."
    digits: Mapping[str, str] = field(default_factory=dict[str, str])
    "Word of any language -> the digit that it means."

    def take(self, text: str) -> tuple[str, frozenset[str]]:
        """Returns the text without codes, and the names of the guards whose codes it had.

        Digits count only if no other digits stand next to them. Otherwise a long row of digits
        could contain every code.
        """
        if not self.codes or not text:
            return text, frozenset()
        words = self._words(text)
        found: dict[str, tuple[int, int]] = {}
        for name, code in self.codes.items():
            wanted = list(code) if code.isdecimal() else [code.casefold()]
            if (place := _find(words, wanted)) is not None:
                found[name] = place
        for start, end in sorted(set(found.values()), reverse=True):
            text = text[:start].rstrip(" ,;:-") + text[end:]
        return " ".join(text.split()).strip(" ,;:-"), frozenset(found)

    def _words(self, text: str) -> Sequence[_Word]:
        words: list[_Word] = []
        for match in _WORD.finditer(text):
            word, start = match.group().casefold(), match.start()
            known = [self.digits.get(char, char) for char in word]
            if word in self.digits:
                words.append(_Word(self.digits[word], start, match.end()))
            elif all(char.isdecimal() for char in known):
                words += (
                    _Word(str(int(char)), start + at, start + at + 1)
                    for at, char in enumerate(known)
                )
            else:
                words.append(_Word(word, start, match.end()))
        return words


NO_CODES = SpokenCodes()


def _find(words: Sequence[_Word], wanted: Sequence[str]) -> tuple[int, int] | None:
    """Returns the place of the wanted words in the text, as (start, end); None if it is not
    there."""
    size, is_number = len(wanted), wanted[0].isdecimal()
    for at in range(len(words) - size + 1):
        if [word.text for word in words[at : at + size]] != wanted:
            continue
        beside = (*words[max(0, at - 1) : at], *words[at + size : at + size + 1])
        if not (is_number and any(word.is_digit for word in beside)):
            return words[at].start, words[at + size - 1].end
    return None
