"""Interface of what runs the language model: speeches join and leave between two steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """Prompt, limit and sampling of one speech."""

    prompt: tuple[int, ...]
    max_ids: int
    "Most ids of the speech, 1 or more. Prompt and speech fit into the model's context."
    temperature: float = 0.0
    "0: always the most likely id."
    top_k: int = 0
    "Number of most likely ids of a codebook to choose from; 0: all."
    seed: int = 0
    "Seed of the random choices."


@dataclass(frozen=True, slots=True)
class NewId:
    """One id that was written."""

    id: int
    is_last: bool
    "True: the speech is over, by the end marker or the limit, and its slot is free."


class SpeechBackend(Protocol):
    """A loaded language model that writes several speeches at once. Only ids that the order of the
    frames allows are written (see `frames`). Not safe for several threads."""

    slots: int
    "Number of speeches that may run. Their memory is allocated once."
    context: int
    "Most ids of prompt and speech together."

    def start(self, request: SpeechRequest) -> int:
        """Adds a speech, which takes part from the next step on, and returns its number. Raises
        OverloadedError when all slots are taken."""
        ...

    def step(self) -> Mapping[int, NewId]:
        """Writes one id of every running speech, and returns them by number. A speech whose prompt
        still has to be read may be left out. Blocking."""
        ...

    def cancel(self, number: int) -> None:
        """Ends a speech and frees its slot. Does nothing for a speech that is over."""
        ...
