"""Values of voices that run clauses through several stages, and what they report of them."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class StageTime:
    """Time that one clause spent in one stage of a model."""

    stage: str
    "Name of the stage."
    queue_s: float
    "Time that it waited for a place."
    compute_s: float
    "Time from its start to its end, with the other clauses of the batch."
    batch: float
    "Mean number of clauses in the steps in which it took part."


@runtime_checkable
class StagedTts(Protocol):
    """A `Tts` that runs clauses through several stages, and measures them."""

    def take_stage_times(self) -> list[StageTime]:
        """Returns what was measured since the last call, of all clauses, and forgets it."""
        ...
