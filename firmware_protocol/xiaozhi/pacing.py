"""When the next packet of sound may go. Pure: it is told the time.

A device keeps 40 packets and silently loses what is above, and loses what comes right behind `tts
start`, too. So sound begins a moment after that, a few packets go ahead of time against the jitter
of a Wi-Fi, and then each goes when one has been played: by a schedule that does not drift, since
it counts from the first packet.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PacketPacerSettings:
    packet_ms: int = 60
    ahead: int = 4
    """Packets that a device has before it plays the first, and later: 240 ms. It takes out a gap of
    as much, and an interruption is heard as much later."""
    lead_ms: int = 100
    "From `tts start`, which is handled by another task of the device and clears its queue."
    tail_ms: int = 100
    "From the last sound's end to `tts stop`."

    def __post_init__(self) -> None:
        if not 1 <= self.ahead <= 20:
            raise ValueError("ahead must be in [1, 20]: a device keeps 40 packets")


class PacketPacer:
    """One device's, from `start` to `start`."""

    def __init__(self, settings: PacketPacerSettings | None = None) -> None:
        self._settings = settings or PacketPacerSettings()
        self._opens_at = 0.0
        self._played_at = 0.0

    def start(self, now: float) -> None:
        """`tts start` is being sent."""
        self._opens_at = now + self._settings.lead_ms / 1000
        self._played_at = now

    def due_at(self) -> float:
        """Monotonic seconds: when the next packet may go."""
        of = self._settings
        return max(self._opens_at, self._played_at - (of.ahead - 1) * of.packet_ms / 1000)

    def sent(self, now: float) -> None:
        """A packet went; behind a gap the schedule begins anew."""
        self._played_at = max(self._played_at, now) + self._settings.packet_ms / 1000

    def queued_ms(self, now: float) -> float:
        """Sound that the device has not played yet."""
        return max(0.0, 1000 * (self._played_at - now))

    def over_at(self) -> float:
        """When `tts stop` may go, if no more sound comes."""
        return max(self._opens_at, self._played_at) + self._settings.tail_ms / 1000
