"""Keeps what a model thinks to itself out of what it says. Pure."""

from dataclasses import dataclass, field

OPENING = ("<think>", "<thinking>", "<thought>", "<reasoning>", "[think]")
CLOSING = ("</think>", "</thinking>", "</thought>", "</reasoning>", "[/think]")
_LONGEST = max(map(len, CLOSING))


@dataclass(slots=True)
class ReasoningFilter:
    """Takes text in any split, gives what may be spoken. `is_thinking` at the start: the chat
    template opens the thought, and the model only closes it."""

    is_thinking: bool = False
    _held: str = ""
    "The beginning of a tag, perhaps."
    _has_spoken: bool = field(default=False)

    def push(self, text: str) -> str:
        """What of it, and of what was held back, is spoken."""
        self._held += text
        spoken = ""
        while (cut := _next_tag(self._held)) is not None:
            start, end, opens = cut
            if not self.is_thinking:
                spoken += self._held[:start]
            self._held, self.is_thinking = self._held[end:], opens
        safe = len(self._held) - _unfinished(self._held)
        if not self.is_thinking:
            spoken += self._held[:safe]
        self._held = self._held[safe:]
        return self._trimmed(spoken)

    def end(self) -> str:
        """What was held back for nothing. An unfinished thought stays one."""
        held, self._held = self._held, ""
        return "" if self.is_thinking else self._trimmed(held)

    def _trimmed(self, spoken: str) -> str:
        """Models put empty lines between their thoughts and their answer."""
        if not self._has_spoken:
            spoken = spoken.lstrip()
            self._has_spoken = bool(spoken)
        return spoken


def _next_tag(text: str) -> tuple[int, int, bool] | None:
    """(start, end, whether it opens) of the first tag."""
    lower = text.lower()
    found = [
        (start, start + len(tag), tag in OPENING)
        for tag in (*OPENING, *CLOSING)
        if (start := lower.find(tag)) >= 0
    ]
    return min(found, default=None)


def _unfinished(text: str) -> int:
    """How many of the last characters may be the beginning of a tag."""
    tail = text[-_LONGEST + 1 :].lower()
    for start, char in enumerate(tail):
        if char in "<[" and any(tag.startswith(tail[start:]) for tag in (*OPENING, *CLOSING)):
            return len(tail) - start
    return 0
