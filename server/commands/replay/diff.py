"""Compares recorded turns with replayed ones: changed words and changed times."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from statistics import median
from typing import Any

from bench.tools.stats import markdown
from server.commands.replay.trace_reader import RecordedSession, RecordedTurn

TOTAL = "response latency"
"Name of the row for the response latency."


@dataclass(frozen=True, slots=True)
class TurnPair:
    """A recorded turn and its replay; None if the turn exists only on the other side."""

    old: RecordedTurn | None
    new: RecordedTurn | None

    @property
    def is_same(self) -> bool:
        """True if transcript and answer are the same. For turns without words the status counts
        too."""
        if self.old is None or self.new is None:
            return False
        return self.old.words == self.new.words


@dataclass(frozen=True, slots=True)
class SessionDiff:
    """Differences of one session."""

    session: RecordedSession
    pairs: Sequence[TurnPair]
    problem: str = ""
    "Reason why the session was not replayed; empty if it was."

    @property
    def is_same(self) -> bool:
        """True if the session was replayed and all turns have the same words."""
        return not self.problem and all(pair.is_same for pair in self.pairs)


def pairs(old: Sequence[RecordedTurn], new: Sequence[RecordedTurn]) -> list[TurnPair]:
    """Pairs old and new turns by transcript; changed turns are paired in their order as far as
    possible."""
    matcher = SequenceMatcher(None, [t.transcript for t in old], [t.transcript for t in new], False)
    found: list[TurnPair] = []
    for _, old_begin, old_end, new_begin, new_end in matcher.get_opcodes():
        length = max(old_end - old_begin, new_end - new_begin)
        for offset in range(length):
            at_old, at_new = old_begin + offset, new_begin + offset
            found.append(
                TurnPair(
                    old[at_old] if at_old < old_end else None,
                    new[at_new] if at_new < new_end else None,
                )
            )
    return found


def as_text(differences: Sequence[SessionDiff]) -> str:
    """Formats the differences as text."""
    lines: list[str] = []
    for difference in differences:
        lines += [*_session(difference), ""]
    lines.append(stage_table([pair for each in differences for pair in each.pairs]))
    changed = sum(not pair.is_same for each in differences for pair in each.pairs)
    total = sum(len(each.pairs) for each in differences)
    lines.append(f"\n{total - changed} of {total} turns have the same words.")
    return "\n".join(lines)


def as_json(differences: Sequence[SessionDiff]) -> dict[str, Any]:
    """Returns the differences for JSON."""
    return {
        "is_same": all(each.is_same for each in differences),
        "sessions": [
            {
                "session": each.session.id,
                "sound_s": round(each.session.sound_s, 2),
                "problem": each.problem,
                "turns": [{**asdict(pair), "is_same": pair.is_same} for pair in each.pairs],
            }
            for each in differences
        ],
        "stages": _stages([pair for each in differences for pair in each.pairs]),
    }


def stage_table(found: Sequence[TurnPair]) -> str:
    """Formats the median times of turns that exist on both sides, as a table."""
    rows = [
        [name, f"{was:.0f}", f"{now:.0f}", f"{now - was:+.0f}"]
        for name, (was, now) in _stages(found).items()
    ]
    return markdown(["ms, p50", "then", "now", "change"], rows)


def _stages(found: Sequence[TurnPair]) -> Mapping[str, tuple[float, float]]:
    both = [(pair.old, pair.new) for pair in found if pair.old and pair.new]
    old, new = _times(one for one, _ in both), _times(one for _, one in both)
    return {name: (median(old[name]), median(new[name])) for name in old if name in new}


def _times(found: Iterable[RecordedTurn]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for turn in found:
        for stage, took_ms in turn.stages_ms.items():
            times.setdefault(stage, []).append(took_ms)
        if turn.latency_ms is not None:
            times.setdefault(TOTAL, []).append(turn.latency_ms)
    if TOTAL in times:
        times[TOTAL] = times.pop(TOTAL)
    return times


def _session(difference: SessionDiff) -> Iterator[str]:
    session = difference.session
    yield f"session {session.id}: {session.sound_s:.1f} s of sound, {len(session.turns)} turns"
    if difference.problem:
        yield f"  not replayed: {difference.problem}"
    if session.is_cut:
        yield "  it went on longer than its sound: the last turns are missing now"
    if session.pcm.size and not session.has_words:
        yield "  its trace has no words (trace.transcripts): only times can be compared"
    for number, pair in enumerate(difference.pairs, start=1):
        yield from _pair(number, pair)


def _pair(number: int, pair: TurnPair) -> Iterator[str]:
    if pair.is_same and pair.new is not None:
        yield f"  {number:3} = {_turn(pair.new)}{_took(pair)}"
        return
    for sign, turn in (("-", pair.old), ("+", pair.new)):
        if turn is not None:
            yield f"  {number:3} {sign} {_turn(turn)}{_took(TurnPair(turn, None))}"


def _took(pair: TurnPair) -> str:
    """Formats the response latency then and now; empty if the turns have none."""
    found = [turn.latency_ms for turn in (pair.old, pair.new) if turn is not None]
    if all(latency_ms is None for latency_ms in found):
        return ""
    times = ["none" if latency_ms is None else f"{latency_ms:.0f}" for latency_ms in found]
    return f" ({' -> '.join(times)} ms)"


def _turn(turn: RecordedTurn) -> str:
    words = f"{turn.transcript} -> {turn.answer}" if any(turn.words) else "(no words)"
    return words if turn.status == "answered" else f"{words} [{turn.status}]"
