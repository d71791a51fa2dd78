"""Decides when the next packet of sound may be sent. Pure: callers pass the time.

A device has a queue of 40 packets and silently drops further ones. It also drops packets right
after `tts start`. So sound begins a moment after that message. The first few packets are sent ahead
of time, because Wi-Fi delivers unevenly; then one is sent for each that was played. The schedule
does not drift, because it counts from the first packet.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PacketPacerSettings:
    """Times of the schedule. Raises ValueError for an `ahead` outside of 1 to 20."""

    packet_ms: int = 60
    "Duration of a packet."
    ahead: int = 4
    """Packets that are sent ahead of playback: 240 ms. Gaps of that length on the network are not
    audible, but an interruption takes effect that much later."""
    lead_ms: int = 100
    "Pause after `tts start`, which another task of the device handles by clearing the queue."
    tail_ms: int = 100
    "Pause between the end of the sound and `tts stop`."

    def __post_init__(self) -> None:
        if not 1 <= self.ahead <= 20:
            raise ValueError("ahead must be in [1, 20]: a device keeps 40 packets")


class PacketPacer:
    """The schedule of one device; `start` begins it again. All times are monotonic, in s."""

    def __init__(self, settings: PacketPacerSettings | None = None) -> None:
        self._settings = settings or PacketPacerSettings()
        self._opens_at = 0.0
        self._played_at = 0.0

    def start(self, now: float) -> None:
        """Begins the schedule; to be called when `tts start` is sent."""
        self._opens_at = now + self._settings.lead_ms / 1000
        self._played_at = now

    def due_at(self) -> float:
        """Returns the time when the next packet may be sent."""
        settings = self._settings
        return max(
            self._opens_at, self._played_at - (settings.ahead - 1) * settings.packet_ms / 1000
        )

    def sent(self, now: float) -> None:
        """Counts a packet that was sent. After a gap the schedule continues from `now`."""
        self._played_at = max(self._played_at, now) + self._settings.packet_ms / 1000

    def queued_ms(self, now: float) -> float:
        """Returns how much sound the device has not played yet, in ms."""
        return max(0.0, 1000 * (self._played_at - now))

    def finished_at(self) -> float:
        """Returns the time when `tts stop` may be sent, if no more sound comes."""
        return max(self._opens_at, self._played_at) + self._settings.tail_ms / 1000
