"""Remembers which worker keeps the decoder state of which utterance."""

from collections import Counter

MAX_HOMES = 1024
"""Largest number of utterances that are remembered, far more than speak at once. Beyond it the one
unused for longest is forgotten."""


class WorkerAffinity:
    """Workers by utterance, from the utterance's first partial until it is final or forgotten.
    Bounded. A worker is called the utterance's home."""

    def __init__(self) -> None:
        self._homes: dict[str, int] = {}
        "Index of the worker by utterance, the least recently used first."

    def __len__(self) -> int:
        return len(self._homes)

    def of(self, utterance: str) -> int | None:
        """Returns the utterance's worker; None if no worker keeps anything of it."""
        return self._homes.get(utterance)

    def open(self, utterance: str, worker: int) -> list[tuple[str, int]]:
        """Notes that the worker decodes a part of the utterance. Returns the utterances that were
        forgotten to stay within MAX_HOMES, with their workers."""
        self._homes.pop(utterance, None)
        self._homes[utterance] = worker
        gone = list(self._homes.items())[: max(0, len(self._homes) - MAX_HOMES)]
        for old, _ in gone:
            del self._homes[old]
        return gone

    def close(self, utterance: str) -> int | None:
        """Forgets an utterance that is over. Returns its worker; None if it had none."""
        return self._homes.pop(utterance, None)

    def leave(self, worker: int) -> None:
        """Forgets all utterances of a worker that has lost its state."""
        self._homes = {name: home for name, home in self._homes.items() if home != worker}

    def count(self) -> Counter[int]:
        """Returns the number of utterances by worker."""
        return Counter(self._homes.values())
