"""A terminal that tests can read."""

import io


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True

    def drawn(self) -> list[str]:
        """Returns what was written after each clearing of the line."""
        return [text.rstrip("\n") for text in self.getvalue().split("\r\x1b[K")[1:]]
