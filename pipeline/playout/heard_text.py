"""Which words of an answer were heard: its clauses on the clock of its own sound. Pure."""

from dataclasses import dataclass, field

from core.events import TruncationPoint
from engines.base import WordMark

WORD_MS = 300
"A word at 200 a minute: what is expected of a clause while nothing of the answer is complete."


@dataclass(slots=True)
class _ClauseTiming:
    text: str
    start_ms: float
    end_ms: float | None = None
    marks: list[WordMark] = field(default_factory=list[WordMark])


class HeardText:
    """Clauses in the order in which the voice takes them.

    Within a clause, words count by the times that the voice gave; with a voice that gives none, in
    proportion to the clause's sound, rounded down. A clause whose sound is still being made is then
    expected to last as long as its words did in the clauses before.
    """

    def __init__(self) -> None:
        self._clauses: list[_ClauseTiming] = []

    def begin(self, text: str, at_ms: float) -> None:
        """The voice took this clause after `at_ms` of the answer's sound was made."""
        self.end(at_ms)
        self._clauses.append(_ClauseTiming(text, at_ms))

    def word(self, mark: WordMark) -> None:
        """The voice says when a word sounds."""
        if mark.chunk < len(self._clauses):
            self._clauses[mark.chunk].marks.append(mark)

    def end(self, at_ms: float) -> None:
        """The last clause's sound is complete."""
        if self._clauses and self._clauses[-1].end_ms is None:
            self._clauses[-1].end_ms = at_ms

    def clause_at(self, at_ms: float) -> tuple[int, str] | None:
        """Number and text of the clause that sounds there; None: none has begun."""
        begun = [number for number, c in enumerate(self._clauses) if c.start_ms <= at_ms]
        return (begun[-1], self._clauses[begun[-1]].text) if begun else None

    def cut(self, heard_ms: float, total_ms: float) -> TruncationPoint:
        """How many words were heard, and how it is known: that of the clause it was cut in."""
        words = len(self.heard(heard_ms, total_ms).split())
        place = self.clause_at(heard_ms)
        has_times = place is not None and bool(self._clauses[place[0]].marks)
        return TruncationPoint(words, "word_times" if has_times else "proportion")

    def heard(self, heard_ms: float, total_ms: float) -> str:
        """The words within the first `heard_ms`; `total_ms` of sound were made so far."""
        words: list[str] = []
        for clause in self._clauses:
            part = clause.text.split()
            if clause.marks and (clause.end_ms is None or heard_ms < clause.end_ms):
                ends = [mark.end_char for mark in clause.marks if mark.end_ms <= heard_ms]
                words += clause.text[: max(ends, default=0)].split()
                continue
            end_ms = clause.end_ms
            if end_ms is None:
                end_ms = max(total_ms, clause.start_ms + len(part) * self._word_ms())
            if heard_ms <= clause.start_ms:
                break  # a clause without sound was not heard either
            if heard_ms >= end_ms:
                words += part
            else:
                share = (heard_ms - clause.start_ms) / (end_ms - clause.start_ms)
                words += part[: int(len(part) * share)]
        return " ".join(words)

    def _word_ms(self) -> float:
        """How long a word of the complete clauses lasted."""
        last_ms = max((c.end_ms for c in self._clauses if c.end_ms is not None), default=0.0)
        count = sum(len(c.text.split()) for c in self._clauses if c.end_ms is not None)
        return last_ms / count if last_ms > 0 and count else WORD_MS
