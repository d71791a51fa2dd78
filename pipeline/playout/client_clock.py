"""Estimates when a client that paces its own playout plays what it is sent: at once, in order and
without a break."""

from core.ports import Clock


class ClientPlayoutClock:
    """Playout clock of one session. The network delay to the client is not included."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ends_at = 0.0
        "Monotonic seconds at which all that was sent has been played."

    def take(self, duration_s: float) -> float:
        """Notes that `duration_s` of sound is sent. Returns the monotonic seconds at which it
        begins to play."""
        begin = max(self._clock.now(), self.ends_at)
        self.ends_at = begin + duration_s
        return begin

    def drop_unplayed(self) -> None:
        """Notes that the client drops what it has not played yet."""
        self.ends_at = min(self.ends_at, self._clock.now())
