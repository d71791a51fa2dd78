"""How much of one client is done before the others of the server have their turn."""

from core.audio import ASR_RATE_HZ, ms_to_samples
from signaling.realtime.protocol.audio_input import SLICE_MS

SAMPLES_PER_TURN = ms_to_samples(SLICE_MS, ASR_RATE_HZ)
"Heard at once: so much takes some 0.8 ms, and one event may bring five minutes."

SAMPLES_PER_EVENT = SAMPLES_PER_TURN // 8
"What any event counts for: it takes some 50 µs, and the transport hands over thousands at once."

LARGE_EVENT_CHARS = 32 * 1024
"From here on an event is a turn: an update with 128 tools takes some 6 ms."

PAUSE_S = 0.005
"""From the end of one event to the next: then the others have had their turn. Who sends as fast as
it speaks pays for no other, for a turn costs a round of the event loop; who floods pauses for some
microseconds, however long its events take."""


class EventLoopShare:
    """One connection's, in samples that are heard or cost as much. Times are in seconds."""

    def __init__(self) -> None:
        self._done = 0
        self._left_at = 0.0

    def came(self, now: float) -> None:
        """An event is to be done."""
        if now - self._left_at >= PAUSE_S:
            self._done = 0

    def next(self, samples: int) -> bool:
        """So much is done next. True: others are to have their turn before it."""
        is_over = self._done >= SAMPLES_PER_TURN
        self._done = samples if is_over else self._done + samples
        return is_over

    def left(self, now: float) -> None:
        """The event is done."""
        self._left_at = now
