"""Finds which words of an answer the user heard, by the times of its clauses. Pure."""

from dataclasses import dataclass, field

from core.conversation.events import TruncationPoint
from engines.base import WordMark

WORD_MS = 300
"Length of a word at 200 a minute: assumed while no clause of the answer is complete."


@dataclass(slots=True)
class _ClauseTiming:
    """Text of one clause, and where its sound lies in the answer."""

    text: str
    start_ms: float
    end_ms: float | None = None
    marks: list[WordMark] = field(default_factory=list[WordMark])


class HeardText:
    """Words of an answer by playout time. Clauses come in the order in which the voice takes them.

    Within a clause, words count by the times that the voice gave. Without such times they count in
    proportion to the clause's sound, rounded down. A clause whose sound is incomplete is assumed to
    have words as long as those of the clauses before.

        text.begin("It is noon.", at_ms=0)
        text.end(at_ms=900)
        text.text_until(450, total_ms=900)  # "It"
    """

    def __init__(self) -> None:
        self._clauses: list[_ClauseTiming] = []

    def begin(self, text: str, at_ms: float) -> None:
        """Begins a clause. `at_ms`: length of the answer's sound before it."""
        self.end(at_ms)
        self._clauses.append(_ClauseTiming(text, at_ms))

    def word(self, mark: WordMark) -> None:
        """Adds the time of a word, as the voice gives it."""
        if mark.chunk < len(self._clauses):
            self._clauses[mark.chunk].marks.append(mark)

    def end(self, at_ms: float) -> None:
        """Notes that the sound of the last clause is complete. `at_ms`: length of the answer's
        sound."""
        if self._clauses and self._clauses[-1].end_ms is None:
            self._clauses[-1].end_ms = at_ms

    def clause_at(self, at_ms: float) -> tuple[int, str] | None:
        """Returns number and text of the clause at `at_ms` of the answer; None: none has begun."""
        begun = [number for number, c in enumerate(self._clauses) if c.start_ms <= at_ms]
        return (begun[-1], self._clauses[begun[-1]].text) if begun else None

    def cut(self, heard_ms: float, total_ms: float) -> TruncationPoint:
        """Returns how many words were heard, and whether that is known from the voice's word times
        in the clause that was cut."""
        words = len(self.text_until(heard_ms, total_ms).split())
        place = self.clause_at(heard_ms)
        has_times = place is not None and bool(self._clauses[place[0]].marks)
        return TruncationPoint(words, "word_times" if has_times else "proportion")

    def text_until(self, heard_ms: float, total_ms: float) -> str:
        """Returns the words within the first `heard_ms`. `total_ms`: length of the sound so far."""
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
        """Returns the mean length of a word in the complete clauses, in ms."""
        last_ms = max((c.end_ms for c in self._clauses if c.end_ms is not None), default=0.0)
        count = sum(len(c.text.split()) for c in self._clauses if c.end_ms is not None)
        return last_ms / count if last_ms > 0 and count else WORD_MS
