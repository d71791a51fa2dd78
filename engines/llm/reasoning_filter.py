"""Removes a model's thoughts (`<think>...</think>`) from its answer. Pure."""

from dataclasses import dataclass, field

OPENING = ("<think>", "<thinking>", "<thought>", "<reasoning>", "[think]")
CLOSING = ("</think>", "</thinking>", "</thought>", "</reasoning>", "[/think]")
_LONGEST = max(map(len, CLOSING))


@dataclass(slots=True)
class ReasoningFilter:
    """Takes text in pieces of any length and returns the part that may be spoken."""

    is_thinking: bool = False
    """True inside a thought. Start with True if the chat template opens the thought, so that the
    model writes only the closing tag."""
    _pending_text: str = ""
    "End of the text so far that may be the beginning of a tag."
    _has_spoken: bool = field(default=False)

    def push(self, text: str) -> str:
        """Returns the speakable part of `text` and of the text held back so far."""
        self._pending_text += text
        spoken = ""
        while (tag := _next_tag(self._pending_text)) is not None:
            start, end, opens = tag
            if not self.is_thinking:
                spoken += self._pending_text[:start]
            self._pending_text, self.is_thinking = self._pending_text[end:], opens
        safe = len(self._pending_text) - _partial_tag_chars(self._pending_text)
        if not self.is_thinking:
            spoken += self._pending_text[:safe]
        self._pending_text = self._pending_text[safe:]
        return self._trim_start(spoken)

    def end(self) -> str:
        """Returns the text that was held back, if it is no thought."""
        rest, self._pending_text = self._pending_text, ""
        return "" if self.is_thinking else self._trim_start(rest)

    def _trim_start(self, spoken: str) -> str:
        """Removes the empty lines that models write between their thoughts and their answer."""
        if not self._has_spoken:
            spoken = spoken.lstrip()
            self._has_spoken = bool(spoken)
        return spoken


def _next_tag(text: str) -> tuple[int, int, bool] | None:
    """Returns (start, end, True if it is an opening tag) of the first tag; None without a tag."""
    lower = text.lower()
    found = [
        (start, start + len(tag), tag in OPENING)
        for tag in (*OPENING, *CLOSING)
        if (start := lower.find(tag)) >= 0
    ]
    return min(found, default=None)


def _partial_tag_chars(text: str) -> int:
    """Returns how many of the last characters may be the beginning of a tag."""
    tail = text[-_LONGEST + 1 :].lower()
    for start, char in enumerate(tail):
        if char in "<[" and any(tag.startswith(tail[start:]) for tag in (*OPENING, *CLOSING)):
            return len(tail) - start
    return 0
