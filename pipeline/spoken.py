"""Which words of an answer were heard: its clauses on the clock of its own sound. Pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Clause:
    text: str
    start_ms: float
    end_ms: float | None = None


class SpokenText:
    """Clauses in the order in which the voice takes them.

    Within a clause the words are counted in proportion to its sound, rounded down: eSpeak NG
    says where a clause ends, not where a word does.
    """

    def __init__(self) -> None:
        self._clauses: list[_Clause] = []

    def begin(self, text: str, at_ms: float) -> None:
        """The voice took this clause after `at_ms` of the answer's sound was made."""
        self.end(at_ms)
        self._clauses.append(_Clause(text, at_ms))

    def end(self, at_ms: float) -> None:
        """The last clause's sound is complete."""
        if self._clauses and self._clauses[-1].end_ms is None:
            self._clauses[-1].end_ms = at_ms

    def heard(self, heard_ms: float, total_ms: float) -> str:
        """The words within the first `heard_ms`; `total_ms` of sound were made so far."""
        words: list[str] = []
        for clause in self._clauses:
            end_ms = total_ms if clause.end_ms is None else clause.end_ms
            if heard_ms >= end_ms:
                words.append(clause.text)
            elif heard_ms > clause.start_ms:
                share = (heard_ms - clause.start_ms) / (end_ms - clause.start_ms)
                part = clause.text.split()
                words += part[: int(len(part) * share)]
        return " ".join(words)
