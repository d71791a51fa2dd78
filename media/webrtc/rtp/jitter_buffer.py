"""Jitter buffer for live audio: reorders packets, and gives up on a late packet instead of waiting
for it.

The audio goes to a recogniser, or to a player with a buffer of its own. Neither needs packets at
even intervals, so a packet that is next in order is never held back.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_MISORDER = 100
"RFC 3550 A.1: a packet further behind than this is no late packet but a restarted sender."

MAX_DROPOUT = 3000
"RFC 3550 A.1: one minute of lost packets; a packet further ahead means a restarted sender."


@dataclass(slots=True)
class JitterStats:
    """Counts of packets since the stream began."""

    lost: int = 0
    "Packets that were given up. Some of them may be counted as late afterwards."
    late: int = 0
    "Packets that came after they were given up, or came twice. They are dropped."
    reordered: int = 0
    "Packets that came after a younger one, but in time."
    resyncs: int = 0
    "Restarts of the sender."


@dataclass(slots=True)
class JitterFlow:
    """Totals since the stream began, from which the mean delay is computed."""

    released: int = 0
    "Packets that were passed on, in order."
    buffered: int = 0
    "Sum of the numbers of packets that were held back after each arrival."


class JitterBuffer(Generic[T]):
    """Holds at most `depth` packets, and only those that follow a gap.

    Without loss it delays nothing. A lost packet delays those after it once, until `depth` of them
    have arrived. The buffer has no clock: held packets wait for the next arrival, so n losses in a
    row cost the time of n packets.

    Example:
        buffer = JitterBuffer[bytes](depth=1)
        for due in buffer.push(sequence_number, payload):       # in order
            ...
    """

    def __init__(self, depth: int) -> None:
        self.stats = JitterStats()
        self.flow = JitterFlow()
        self._depth = depth
        self._packets: dict[int, T] = {}
        self._next: int | None = None
        self._newest = 0
        self._suspect: int | None = None
        """Sequence number that would confirm a restart of the sender; None if there is no such
        suspicion."""

    def __len__(self) -> int:
        return len(self._packets)

    def push(self, sequence_number: int, packet: T) -> list[T]:
        """Takes one packet, and returns the packets that are due, in order. `sequence_number`: 16
        bits."""
        # Nearly all packets take this short way.
        if sequence_number == self._next and not self._packets:
            self._suspect = None
            self._newest = sequence_number
            self._next = (sequence_number + 1) & 0xFFFF
            self.flow.released += 1
            return [packet]
        if self._next is None:
            self._restart(sequence_number)
        elif sequence_number == self._suspect:
            self.stats.resyncs += 1
            self._restart(sequence_number)
        elif not self._is_near(sequence_number):  # RFC 3550 A.1: a restart takes two in a row
            self._suspect = (sequence_number + 1) & 0xFFFF
            self.stats.late += 1
            return []
        elif sequence_distance(sequence_number, self._next) < 0 or sequence_number in self._packets:
            self.stats.late += 1
            return []
        self._suspect = None
        if sequence_distance(sequence_number, self._newest) < 0:
            self.stats.reordered += 1
        else:
            self._newest = sequence_number
        self._packets[sequence_number] = packet
        due = self._next_in_order(self._depth)
        self.flow.buffered += len(self._packets)
        return due

    def drain(self) -> list[T]:
        """Returns all held packets, in order. For a sender that pauses, after which no arrival
        releases them."""
        return self._next_in_order(0)

    def _restart(self, sequence_number: int) -> None:
        self._packets.clear()
        self._next = self._newest = sequence_number

    def _is_near(self, sequence_number: int) -> bool:
        return -MAX_MISORDER <= sequence_distance(sequence_number, self._newest) <= MAX_DROPOUT

    def _next_in_order(self, depth: int) -> list[T]:
        """Returns the packets that are next in order; also those after a gap, while more than
        `depth` wait."""
        due: list[T] = []
        while self._packets and self._next is not None:
            if self._next not in self._packets:
                if len(self._packets) <= depth:
                    break
                origin = self._next
                following = min(self._packets, key=lambda held: sequence_distance(held, origin))
                self.stats.lost += sequence_distance(following, origin)
                self._next = following
            due.append(self._packets.pop(self._next))
            self._next = (self._next + 1) & 0xFFFF
        self.flow.released += len(due)
        return due


def sequence_distance(a: int, b: int) -> int:
    """Returns the signed difference a - b of 16-bit RTP sequence numbers (RFC 3550 section 5.1)."""
    return ((a - b + 0x8000) & 0xFFFF) - 0x8000
