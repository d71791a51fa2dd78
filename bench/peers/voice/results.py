"""What rounds of several systems came to."""

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
    """Of one system."""

    times_ms: list[list[float]] = field(default_factory=list[list[float]])
    "Of each round, the turns that were answered after they were over."
    said: int = 0
    early: int = 0
    "Answered before they were over: a pause was taken for the end."
    problem: str = ""

    def take(self, times_ms: list[float | None]) -> None:
        self.said += len(times_ms)
        self.early += sum(ms is not None and ms < 0 for ms in times_ms)
        answered = [ms for ms in times_ms if ms is not None and ms >= 0]
        if answered:
            self.times_ms.append(answered)


def table(found: Mapping[str, VoiceRounds]) -> str:
    """Markdown, a row per system; (least to most) is over rounds."""
    return markdown(HEAD, [_row(title, rounds) for title, rounds in found.items()])


def _row(title: str, rounds: VoiceRounds) -> list[str]:
    name = f"{title} ({rounds.problem})" if rounds.problem else title
    if not rounds.times_ms:
        return [name, "-", "-", f"0 of {rounds.said}", str(rounds.early)]
    medians = [median(each) for each in rounds.times_ms]
    every = [ms for each in rounds.times_ms for ms in each]
    return [
        name,
        f"{median(medians):.0f} ({min(medians):.0f} to {max(medians):.0f})",
        f"{percentile(every, 95):.0f}",
        f"{len(every)} of {rounds.said}",
        str(rounds.early),
    ]
