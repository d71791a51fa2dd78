"""Interface of what runs a token model: requests join and leave between two steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Prompt, limit and sampling of one sequence of ids."""

    prompt: tuple[int, ...]
    max_ids: int
    """Most ids to write, 1 or more. Prompt and new ids fit into the model's context; the last new
    id needs no place, because it is never read."""
    temperature: float = 0.0
    "0: always the most likely id."
    top_k: int = 0
    "Number of most likely allowed ids to choose from; 0: all."
    seed: int = 0
    "Seed of the random choices."
    added: tuple[int, ...] = ()
    "Ids whose vectors are added to those of the first ids of the prompt; () for most models."
    min_stop_chance: float = 1.0
    "Probability of the end marker, 0 to 1, above which it is written whatever the sampling says."


@dataclass(frozen=True, slots=True)
class NewId:
    """One id that was written."""

    id: int
    is_last: bool
    "True: the sequence is over, by the end marker or the limit, and its slot is free."


@dataclass(frozen=True, slots=True)
class AllowedIds:
    """Ids that may be written at one position."""

    first: int
    count: int
    "Number of ids from `first` on."
    stop: int | None = None
    "The end marker, if it may be written, too."


IdOrder: TypeAlias = Callable[[int], AllowedIds]
"Returns the ids that may be written at a position, which counts the new ids from 0."


class TokenBackend(Protocol):
    """A loaded token model that writes several sequences at once. Only ids that its order allows
    are written. Not safe for several threads."""

    slots: int
    "Number of sequences that may run. Their memory is allocated once."
    context: int
    "Most ids of prompt and new ids together."

    def start(self, request: TokenRequest) -> int:
        """Adds a sequence, which takes part from the next step on, and returns its number. Raises
        OverloadedError when all slots are taken."""
        ...

    def step(self) -> Mapping[int, NewId]:
        """Writes one id of every running sequence, and returns them by number. A sequence whose
        prompt still has to be read may be left out. Blocking."""
        ...

    def cancel(self, number: int) -> None:
        """Ends a sequence and frees its slot. Does nothing for one that is over."""
        ...
