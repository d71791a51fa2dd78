"""Results of the rounds of several systems."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from bench.tools.stats import markdown, percentile

HEAD = (
    "system",
    "voice to voice, median of rounds, ms",
    "p95 of all turns",
    "answered",
    "too early",
)


@dataclass(slots=True)
class VoiceRounds:
    """Rounds of one system. sent: number of all turns."""

    times_ms: list[list[float]] = field(default_factory=list[list[float]])
    "Latencies of each round, for turns that were answered after their end."
    sent: int = 0
    early: int = 0
    "Turns that were answered before their end: a pause was taken for the end."
    problem: str = ""

    def add(self, times_ms: list[float | None]) -> None:
        """Adds a round. times_ms: latency of each turn, None without an answer."""
        self.sent += len(times_ms)
        self.early += sum(ms is not None and ms < 0 for ms in times_ms)
        answered = [ms for ms in times_ms if ms is not None and ms >= 0]
        if answered:
            self.times_ms.append(answered)


def table(found: Mapping[str, VoiceRounds]) -> str:
    """Returns Markdown, a row per system; (smallest to largest) is over rounds."""
    return markdown(HEAD, [_row(title, rounds) for title, rounds in found.items()])


def _row(title: str, rounds: VoiceRounds) -> list[str]:
    name = f"{title} ({rounds.problem})" if rounds.problem else title
    if not rounds.times_ms:
        return [name, "-", "-", f"0 of {rounds.sent}", str(rounds.early)]
    medians = [median(each) for each in rounds.times_ms]
    every = [ms for each in rounds.times_ms for ms in each]
    return [
        name,
        f"{median(medians):.0f} ({min(medians):.0f} to {max(medians):.0f})",
        f"{percentile(every, 95):.0f}",
        f"{len(every)} of {rounds.sent}",
        str(rounds.early),
    ]
