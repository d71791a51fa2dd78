"""Text as it is generated -> clauses that can be spoken, the first as early as possible. Pure."""

CLAUSE_ENDS = ",;:"
SENTENCE_ENDS = ".!?\u3002\uff01\uff1f\u2026\n"
MIN_FIRST_CHARS = 12
"Shorter first clauses (`Yes,`) wait for the next: spoken alone they sound cut off."
MIN_CLAUSE_CHARS = 60
"After the first, whole sentences sound better; only a long one is broken at a comma."
MAX_CHARS = 240
"A voice must not wait for a model that never writes a full stop."


class Chunker:
    """Feed deltas, get clauses. Decimal points and abbreviations do not end one: a space must
    follow."""

    def __init__(self) -> None:
        self._text = ""
        self._is_first = True

    def push(self, delta: str) -> list[str]:
        """The clauses that `delta` completes."""
        self._text += delta
        clauses = []
        while (end := self._find_end()) is not None:
            clause, self._text = self._text[:end].strip(), self._text[end:].lstrip()
            if clause:
                clauses.append(clause)
                self._is_first = False
        return clauses

    def flush(self) -> str | None:
        """What is left, when the text is over."""
        rest, self._text = self._text.strip(), ""
        return rest or None

    def _find_end(self) -> int | None:
        """Index after the first clause, None while it is not complete."""
        for index, char in enumerate(self._text[:-1]):
            if not (self._text[index + 1].isspace() or char in "\n\u3002\uff01\uff1f"):
                continue
            length = index + 1
            if char in SENTENCE_ENDS and length >= (MIN_FIRST_CHARS if self._is_first else 1):
                return length
            if char in CLAUSE_ENDS and length >= self._min_clause_chars:
                return length
        if len(self._text) > MAX_CHARS:
            space = self._text.rfind(" ", 0, MAX_CHARS)
            return space if space > 0 else MAX_CHARS
        return None

    @property
    def _min_clause_chars(self) -> int:
        return MIN_FIRST_CHARS if self._is_first else MIN_CLAUSE_CHARS
