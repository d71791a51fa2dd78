"""Remembers which worker keeps the state of which sequence, such as an utterance."""

from collections import Counter

MAX_SEQUENCES = 1024
"""Largest number of sequences that are remembered, far more than people speak at once. Beyond it
the one unused for longest is forgotten."""


class WorkerAffinity:
    """Workers by sequence, from the sequence's first item until its last, or until it is forgotten.
    Bounded. The scheduler counts each lane of a worker as a worker of its own."""

    def __init__(self) -> None:
        self._workers: dict[str, int] = {}
        "Index of the worker by sequence, the least recently used first."

    def __len__(self) -> int:
        return len(self._workers)

    def worker_of(self, sequence: str | None) -> int | None:
        """Returns the worker that keeps the sequence; None if no worker does."""
        return None if sequence is None else self._workers.get(sequence)

    def assign(self, sequence: str, worker: int) -> list[tuple[str, int]]:
        """Notes that the worker keeps state of the sequence. Returns the sequences that were
        forgotten to stay within MAX_SEQUENCES, with their workers."""
        self._workers.pop(sequence, None)
        self._workers[sequence] = worker
        dropped = list(self._workers.items())[: max(0, len(self._workers) - MAX_SEQUENCES)]
        for old, _ in dropped:
            del self._workers[old]
        return dropped

    def release(self, sequence: str) -> int | None:
        """Forgets a sequence that is over. Returns its worker; None if it had none."""
        return self._workers.pop(sequence, None)

    def drop_worker(self, worker: int) -> None:
        """Forgets all sequences of a worker that has lost its state."""
        self._workers = {name: keeper for name, keeper in self._workers.items() if keeper != worker}

    def count_by_worker(self) -> Counter[int]:
        """Returns the number of sequences by worker."""
        return Counter(self._workers.values())
