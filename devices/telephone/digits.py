"""Collects the keys that a caller presses into one message. Pure."""

DIGITS = frozenset("0123456789*#ABCD")
"Keys that DTMF knows."

MAX_DIGITS = 32
"Longest message: a number of any country has at most 15 digits. More keys end the message."

PAUSE_S = 2.0
"""Pause after which the caller has pressed all keys. People take about a second between two keys
when they read a number."""

END = "#"
"Key that ends a message at once, as telephones do it everywhere."


class DigitCollector:
    """Keys of one call."""

    def __init__(self) -> None:
        self.due_at: float | None = None
        "Monotonic seconds at which the message is complete; None: no key waits."
        self._digits: list[str] = []

    def press(self, digit: str, now: float) -> str:
        """Adds a key. Returns the message if the key completes it, else an empty text."""
        self._digits.append(digit)
        self.due_at = now + PAUSE_S
        return self._message() if digit == END or len(self._digits) >= MAX_DIGITS else ""

    def tick(self, now: float) -> str:
        """Returns the message if the pause after it is over, else an empty text."""
        return self._message() if self.due_at is not None and now >= self.due_at else ""

    def _message(self) -> str:
        """Returns the keys as the words that the language model reads, and begins anew."""
        text = f"pressed {' '.join(self._digits)}"
        self._digits.clear()
        self.due_at = None
        return text
