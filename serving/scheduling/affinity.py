"""Which worker keeps the decoder state of which utterance."""

from collections import Counter

MAX_HOMES = 1024
"Far more than speak at once. Beyond it the one that was silent longest is forgotten."


class WorkerAffinity:
    """Utterance -> worker, from its first partial until it is final or forgotten. Bounded."""

    def __init__(self) -> None:
        self._homes: dict[str, int] = {}
        "The one used longest ago first."

    def __len__(self) -> int:
        return len(self._homes)

    def of(self, utterance: str) -> int | None:
        return self._homes.get(utterance)

    def open(self, utterance: str, worker: int) -> list[tuple[str, int]]:
        """The worker decodes a part of it. Those that had to go for it, with their workers."""
        self._homes.pop(utterance, None)
        self._homes[utterance] = worker
        gone = list(self._homes.items())[: max(0, len(self._homes) - MAX_HOMES)]
        for old, _ in gone:
            del self._homes[old]
        return gone

    def close(self, utterance: str) -> int | None:
        """It is over; where it was."""
        return self._homes.pop(utterance, None)

    def leave(self, worker: int) -> None:
        """The worker has lost everything."""
        self._homes = {name: home for name, home in self._homes.items() if home != worker}

    def count(self) -> Counter[int]:
        """Utterances by worker."""
        return Counter(self._homes.values())
