"""How much of one client is done before the others of the server have their turn."""

import asyncio

from core.audio import ASR_RATE_HZ, ms_to_samples
from signaling.realtime.upload import SLICE_MS

SAMPLES_PER_TURN = ms_to_samples(SLICE_MS, ASR_RATE_HZ)
"Heard at once: so much takes some 0.4 ms, and one event may bring five minutes."

SAMPLES_PER_EVENT = SAMPLES_PER_TURN // 8
"What any event counts for: it takes some 50 µs, and the transport hands over thousands at once."

TURN_S = 0.01
"""What was done before that counts no more. Who sends as fast as it speaks leaves others their turn
while it says nothing, and pays for no other: a turn costs a round of the event loop."""


class Turns:
    """One connection's, in samples that are heard or cost as much."""

    def __init__(self) -> None:
        self._began = 0.0
        self._done = 0

    async def before(self, samples: int, now: float) -> None:
        """So much is done next: others first, if it is their turn. `now`: when what it belongs to
        came, in seconds."""
        if now - self._began >= TURN_S:
            self._began, self._done = now, 0
        if self._done >= SAMPLES_PER_TURN:
            self._done = 0
            await asyncio.sleep(0)
        self._done += samples
