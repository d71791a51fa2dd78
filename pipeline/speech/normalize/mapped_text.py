"""Text that keeps, through every replacement, the positions of the written characters. Pure."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

TextPiece = str | int
"Part of a replacement: new text, or the number of a match group that is kept as it is."

Replacement = Callable[[re.Match[str]], Iterable[TextPiece]]

NOTHING: Final[Replacement] = lambda _: ()  # noqa: E731 - a name for the shortest replacement
SPACE: Final[Replacement] = lambda _: (" ",)  # noqa: E731
FIRST_GROUP: Final[Replacement] = lambda _: (1,)  # noqa: E731


@dataclass(frozen=True, slots=True)
class NormalizedText:
    """A clause as it is read aloud, with the way back to what was written."""

    text: str
    "Spoken text. Empty when nothing of the clause is read (code, a rule)."
    origin: tuple[int, ...]
    """Number of written characters that the first 0, 1, ... `len(text)` spoken ones stand for;
    never falling. `clause[: origin[mark.end_char]]` is what was spoken when the `WordMark` ends."""


@dataclass(frozen=True, slots=True)
class MappedText:
    """Text, and for every character its place in what was written."""

    text: str
    places: tuple[int, ...]
    "Index of the written character that each character stands for."

    @classmethod
    def of(cls, text: str) -> "MappedText":
        """Returns a text whose characters all stand for themselves."""
        return cls(text, tuple(range(len(text))))

    def part(self, start: int, end: int) -> "MappedText":
        return MappedText(self.text[start:end], self.places[start:end])

    def __add__(self, other: "MappedText") -> "MappedText":
        return MappedText(self.text + other.text, self.places + other.places)

    def sub(self, pattern: re.Pattern[str], replace: Replacement) -> "MappedText":
        """Does what `re.sub` does. New text stands for the last character of what it replaces."""
        matches = [match for match in pattern.finditer(self.text) if match.group()]
        if not matches:
            return self
        text, places, done = [], list[int](), 0
        for match in matches:
            text.append(self.text[done : match.start()])
            places += self.places[done : match.start()]
            done = match.end()
            for piece in replace(match):
                if isinstance(piece, str):
                    text.append(piece)
                    places += [self.places[done - 1]] * len(piece)
                elif match.group(piece):
                    start, end = match.span(piece)
                    text.append(self.text[start:end])
                    places += self.places[start:end]
        text.append(self.text[done:])
        return MappedText("".join(text), (*places, *self.places[done:]))

    def spoken(self, clause: str) -> NormalizedText:
        """Returns the spoken form of `clause`, the written text.

        Written characters that are not read belong to the word that they touch.
        """
        if not self.text:
            return NormalizedText("", (0,))
        following = [len(clause)] * len(self.places)
        for at in range(len(self.places) - 2, -1, -1):
            following[at] = min(following[at + 1], self.places[at + 1])
        origin, end = [0], 0
        for place, later in zip(self.places, following, strict=True):
            end = max(end, place + 1)
            while end < later and not clause[end].isspace():
                end += 1
            origin.append(end)
        origin[-1] = len(clause)
        return NormalizedText(self.text, tuple(origin))
