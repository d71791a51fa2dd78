"""Compares recorded turns with replayed ones: changed words and changed times."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from statistics import median

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
    """Differences between a recorded session and its replay."""

    session: RecordedSession
    pairs: Sequence[TurnPair]
    "Recorded turns with their replays, in order."
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
    turn_pairs: list[TurnPair] = []
    for _, old_begin, old_end, new_begin, new_end in matcher.get_opcodes():
        length = max(old_end - old_begin, new_end - new_begin)
        for offset in range(length):
            old_index, new_index = old_begin + offset, new_begin + offset
            turn_pairs.append(
                TurnPair(
                    old[old_index] if old_index < old_end else None,
                    new[new_index] if new_index < new_end else None,
                )
            )
    return turn_pairs


def as_text(differences: Sequence[SessionDiff]) -> str:
    """Formats the differences as text."""
    lines: list[str] = []
    for difference in differences:
        lines += [*_session_lines(difference), ""]
    lines.append(stage_table([pair for difference in differences for pair in difference.pairs]))
    changed = sum(not pair.is_same for difference in differences for pair in difference.pairs)
    total = sum(len(difference.pairs) for difference in differences)
    lines.append(f"\n{total - changed} of {total} turns have the same words.")
    return "\n".join(lines)


def as_json(differences: Sequence[SessionDiff]) -> dict[str, object]:
    """Returns the differences for JSON."""
    return {
        "is_same": all(difference.is_same for difference in differences),
        "sessions": [
            {
                "session": difference.session.id,
                "sound_s": round(difference.session.sound_s, 2),
                "problem": difference.problem,
                "turns": [{**asdict(pair), "is_same": pair.is_same} for pair in difference.pairs],
            }
            for difference in differences
        ],
        "stages": _stage_medians([pair for difference in differences for pair in difference.pairs]),
    }


def stage_table(turn_pairs: Sequence[TurnPair]) -> str:
    """Formats the median times of turns that exist on both sides, as a table."""
    rows = [
        [name, f"{old_ms:.0f}", f"{new_ms:.0f}", f"{new_ms - old_ms:+.0f}"]
        for name, (old_ms, new_ms) in _stage_medians(turn_pairs).items()
    ]
    return markdown(["ms, p50", "then", "now", "change"], rows)


def _stage_medians(turn_pairs: Sequence[TurnPair]) -> Mapping[str, tuple[float, float]]:
    """Returns stage -> (recorded, replayed) median time in ms, of turns that exist on both
    sides."""
    complete_pairs = [(pair.old, pair.new) for pair in turn_pairs if pair.old and pair.new]
    old, new = (
        _durations_by_stage(turn for turn, _ in complete_pairs),
        _durations_by_stage(turn for _, turn in complete_pairs),
    )
    return {name: (median(old[name]), median(new[name])) for name in old if name in new}


def _durations_by_stage(recorded_turns: Iterable[RecordedTurn]) -> dict[str, list[float]]:
    """Returns stage -> its duration in ms in each turn, with the response latency as a stage."""
    times: dict[str, list[float]] = {}
    for turn in recorded_turns:
        for stage, duration_ms in turn.stages_ms.items():
            times.setdefault(stage, []).append(duration_ms)
        if turn.latency_ms is not None:
            times.setdefault(TOTAL, []).append(turn.latency_ms)
    if TOTAL in times:
        times[TOTAL] = times.pop(TOTAL)  # the response latency is the last row
    return times


def _session_lines(difference: SessionDiff) -> Iterator[str]:
    session = difference.session
    yield f"session {session.id}: {session.sound_s:.1f} s of sound, {len(session.turns)} turns"
    if difference.problem:
        yield f"  not replayed: {difference.problem}"
    if session.is_cut:
        yield "  it went on longer than its recorded sound: the replay lacks the last turns"
    if session.pcm.size and not session.has_words:
        yield "  its trace has no words (trace.transcripts): only times can be compared"
    for number, pair in enumerate(difference.pairs, start=1):
        yield from _pair_lines(number, pair)


def _pair_lines(number: int, pair: TurnPair) -> Iterator[str]:
    if pair.is_same and pair.new is not None:
        yield f"  {number:3} = {_turn_text(pair.new)}{_latency_text(pair)}"
        return
    for sign, turn in (("-", pair.old), ("+", pair.new)):
        if turn is not None:
            yield f"  {number:3} {sign} {_turn_text(turn)}{_latency_text(TurnPair(turn, None))}"


def _latency_text(pair: TurnPair) -> str:
    """Formats the response latency then and now; empty if the turns have none."""
    latencies_ms = [turn.latency_ms for turn in (pair.old, pair.new) if turn is not None]
    if all(latency_ms is None for latency_ms in latencies_ms):
        return ""
    times = ["none" if latency_ms is None else f"{latency_ms:.0f}" for latency_ms in latencies_ms]
    return f" ({' -> '.join(times)} ms)"


def _turn_text(turn: RecordedTurn) -> str:
    words = f"{turn.transcript} -> {turn.answer}" if any(turn.words) else "(no words)"
    return words if turn.status == "answered" else f"{words} [{turn.status}]"
