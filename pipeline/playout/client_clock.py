"""When a client that owns its playout plays what it is sent: at once, in order, without a stop."""

from core.ports import Clock


class ClientPlayoutClock:
    """Of one session. An estimate: the way to the client is not in it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.until = 0.0
        "Monotonic seconds: when everything sent so far has been played."

    def take(self, duration_s: float) -> float:
        """The client is sent so much sound. Returns when it begins to play it."""
        begin = max(self._clock.now(), self.until)
        self.until = begin + duration_s
        return begin

    def silence(self) -> None:
        """The client drops what it has not played yet."""
        self.until = min(self.until, self._clock.now())
