"""Text that remembers, through every replacement, which written characters it stands for. Pure."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

TextPiece = str | int
"Of a replacement: new text, or the number of a group that is kept as it is."

Replacement = Callable[[re.Match[str]], Iterable[TextPiece]]

NOTHING: Final[Replacement] = lambda _: ()  # noqa: E731 - a name for the shortest replacement
SPACE: Final[Replacement] = lambda _: (" ",)  # noqa: E731
FIRST_GROUP: Final[Replacement] = lambda _: (1,)  # noqa: E731


@dataclass(frozen=True, slots=True)
class NormalizedText:
    """A clause as it is read aloud."""

    text: str
    "Empty when nothing of it is read (code, a rule)."
    origin: tuple[int, ...]
    """How many characters of the clause the first 0, 1, ... `len(text)` spoken ones stand for;
    never falling. `clause[: origin[mark.end_char]]` is what was said when the `WordMark` ends."""


@dataclass(frozen=True, slots=True)
class MappedText:
    text: str
    places: tuple[int, ...]
    "For every character the index of the written one that it stands for."

    @classmethod
    def of(cls, text: str) -> "MappedText":
        return cls(text, tuple(range(len(text))))

    def part(self, start: int, end: int) -> "MappedText":
        return MappedText(self.text[start:end], self.places[start:end])

    def __add__(self, other: "MappedText") -> "MappedText":
        return MappedText(self.text + other.text, self.places + other.places)

    def sub(self, pattern: re.Pattern[str], replace: Replacement) -> "MappedText":
        """As `re.sub`; new text stands for the last character of what it replaces."""
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
        """`clause`: what was written. What is not read belongs to the word that it touches."""
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
