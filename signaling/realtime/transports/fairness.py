"""Shares the event loop among clients: limits how much work of one client is done at once."""

from core.audio import ASR_RATE_HZ, ms_to_samples
from signaling.realtime.protocol.audio_input import SLICE_MS

SAMPLES_PER_STEP = ms_to_samples(SLICE_MS, ASR_RATE_HZ)
"""Audio samples that are processed at once. It takes some 0.8 ms, and one event may bring five
minutes."""

SAMPLES_PER_EVENT = SAMPLES_PER_STEP // 8
"""Cost of any event, in samples: it takes some 50 µs, and the transport may deliver thousands at
once."""

LARGE_EVENT_CHARS = 32 * 1024
"Length from which an event counts as SAMPLES_PER_STEP: an update with 128 tools takes some 6 ms."

PAUSE_S = 0.005
"""Pause between two events of a client, in seconds, in which the event loop has served the other
clients. A client that sends in real time then never yields, which would cost a round of the event
loop. A client that floods pauses only for microseconds, however long its events take."""


class EventLoopShare:
    """Work that one connection has done since the event loop last served others, in audio samples
    or their equivalent. Times are in seconds of the event loop's clock."""

    def __init__(self) -> None:
        self._done_samples = 0
        self._ended_at = 0.0

    def begin_event(self, now: float) -> None:
        """Begins an event; a long pause before it resets the count."""
        if now - self._ended_at >= PAUSE_S:
            self._done_samples = 0

    def is_share_used(self, samples: int) -> bool:
        """Adds the next piece of work. Returns True if the caller must yield to other tasks before
        it."""
        is_used = self._done_samples >= SAMPLES_PER_STEP
        self._done_samples = samples if is_used else self._done_samples + samples
        return is_used

    def end_event(self, now: float) -> None:
        """Ends an event."""
        self._ended_at = now
