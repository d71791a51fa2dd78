"""Results of several rounds: medians, ranges, and the ratio to Earshot's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.peers.rounds import AsrRound
from bench.tools.stats import markdown, median_and_range

HEAD = (
    "system",
    "one talker, final after the last sample, ms",
    "× ours",
    "{talkers} talkers, p95, ms",
    "× ours",
    "{talkers} talkers, speech s per s",
    "CPU ms per utterance",
    "with text",
)


@dataclass(slots=True)
class AsrRounds:
    """Rounds of one system. sent: number of all utterances."""

    alone: list[AsrRound] = field(default_factory=list[AsrRound])
    together: list[AsrRound] = field(default_factory=list[AsrRound])
    sent: int = 0
    problem: str = ""
    "Why rounds are missing; empty: none is."

    def add(self, found: AsrRound, rounds: list[AsrRound]) -> None:
        """Adds a round to `rounds` if it has any answers."""
        self.sent += len(found.times_ms) + len(found.lost)
        if found.lost:
            self.problem = found.lost[-1]
        if found.times_ms:
            rounds.append(found)


def table(found: Mapping[str, AsrRounds], ours: str, talkers: int) -> str:
    """Returns Markdown, a row per system, with medians over rounds and (smallest to largest)."""
    own = found[ours]
    head = [text.format(talkers=talkers) for text in HEAD]
    rows = []
    for name, rounds in found.items():
        both = [*rounds.alone, *rounds.together]
        rows.append(
            [
                f"{name} ({rounds.problem})" if rounds.problem else name,
                median_and_range([round_.p50 for round_ in rounds.alone]),
                _ratio(rounds.alone, own.alone, lambda round_: round_.p50),
                median_and_range([round_.p95 for round_ in rounds.together]),
                _ratio(rounds.together, own.together, lambda round_: round_.p95),
                median_and_range([round_.throughput for round_ in rounds.together], 2),
                median_and_range([round_.cpu_ms for round_ in rounds.together]),
                f"{sum(round_.with_text for round_ in both)} of {rounds.sent}",
            ]
        )
    return markdown(head, rows)


def _ratio(
    theirs: Sequence[AsrRound], own: Sequence[AsrRound], of: Callable[[AsrRound], float]
) -> str:
    """Returns the ratio of the medians; above 1 the other system is slower."""
    if not own or not theirs:
        return "-"
    return f"{median(map(of, theirs)) / median(map(of, own)):.2f}"
