"""Ends a text before one of its stop sequences. Pure."""


class StopSequences:
    """Lets a text pass in pieces, up to the first stop sequence.

    A piece that may be the beginning of a stop sequence is held back until that is known.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""
        self.is_over = False
        "True once a stop sequence was found."

    def push(self, text: str) -> str:
        """Takes the next piece and returns what is certain to stand before a stop sequence."""
        if self.is_over or not self._stops:
            return "" if self.is_over else text
        text, self._held = self._held + text, ""
        found = [index for stop in self._stops if (index := text.find(stop)) >= 0]
        if found:
            self.is_over = True
            return text[: min(found)]
        kept = max(_overlap_chars(text, stop) for stop in self._stops)
        if kept:
            text, self._held = text[:-kept], text[-kept:]
        return text

    def end(self) -> str:
        """Returns what was held back, at the end of the text."""
        held, self._held = self._held, ""
        return held


def _overlap_chars(text: str, stop: str) -> int:
    """Returns the length of the longest end of `text` with which `stop` begins."""
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)
