"""Statistics of a loaded model: numbers and times of its requests and calls."""

from collections.abc import Sequence
from dataclasses import dataclass, field

NS_PER_S = 1e9
"Nanoseconds in a second."


@dataclass(slots=True)
class DurationSum:
    """Number of some events, and how long they took together."""

    count: int = 0
    ns: int = 0

    def add(self, seconds: float, count: int = 1) -> None:
        """Adds `count` events that took `seconds` each."""
        self.count += count
        self.ns += round(seconds * NS_PER_S) * count


@dataclass(slots=True)
class CallStatistics:
    """Statistics of one model since it was loaded. A request is one item, which may share a call
    of the worker with others."""

    success: DurationSum = field(default_factory=DurationSum)
    "Requests with a result, from their arrival to their end."
    failure: DurationSum = field(default_factory=DurationSum)
    "Requests whose call failed, from their arrival to its end."
    queue: DurationSum = field(default_factory=DurationSum)
    "Waits of the requests with a result."
    compute: DurationSum = field(default_factory=DurationSum)
    "Requests with a result: the time of their calls."
    calls: DurationSum = field(default_factory=DurationSum)
    "Calls with a result."
    by_batch_size: dict[int, DurationSum] = field(default_factory=dict)
    "The same calls by the number of their requests."
    last_ms: int = 0
    "Unix time of the last result, in ms; 0: there was none."

    def succeeded(self, waits_s: Sequence[float], took_s: float, now_ms: int) -> None:
        """Adds a call with a result. `waits_s`: wait of each of its requests."""
        for wait_s in waits_s:
            self.queue.add(wait_s)
            self.success.add(wait_s + took_s)
        self.compute.add(took_s, len(waits_s))
        self.calls.add(took_s)
        self.by_batch_size.setdefault(len(waits_s), DurationSum()).add(took_s)
        self.last_ms = now_ms

    def failed(self, waits_s: Sequence[float], took_s: float) -> None:
        """Adds a call that failed."""
        for wait_s in waits_s:
            self.failure.add(wait_s + took_s)
