"""The end of a turn between two packets: when it is due by the speaker's clock, and the timer.

Packets come every 20 ms, and the silence that ends a turn is over somewhere between two of them.
The one that is still to come would say no more than that it was: whoever speaks in it goes on after
an end. Only sound that comes in real time has a clock to go by.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from core.audio import ASR_RATE_HZ, ms_to_samples
from core.ports import Clock
from pipeline.user_turn.speech_detector import SpeechDetector

LIVE_MS = 1000
"Of sound, by which it is judged whether it comes in real time."
LEAST_PACE = 0.8
"Time that it took, over its length: some packets at once after a delay are live, no upload is."

_LIVE = ms_to_samples(LIVE_MS, ASR_RATE_HZ)
_LEAST = ms_to_samples(LIVE_MS * LEAST_PACE, ASR_RATE_HZ)


class ArrivalPace:
    """How fast sound comes. No clock: it is given the time."""

    def __init__(self) -> None:
        self._came: deque[tuple[float, int]] = deque()
        "Monotonic seconds, and samples so far."
        self._samples = 0

    def push(self, now: float, samples: int) -> None:
        """So many samples (16 kHz) came."""
        self._samples += samples
        self._came.append((now, self._samples))
        while self._samples - self._came[0][1] > _LIVE:
            self._came.popleft()

    @property
    def is_live(self) -> bool:
        """The newest second took about a second. Less than that was not heard yet: no."""
        (first, begin), (last, end) = self._came[0], self._came[-1]
        sound = end - begin
        if sound < _LEAST:
            return False
        return last - first >= LEAST_PACE * sound / ASR_RATE_HZ


class EndpointTimer:
    """One session's timer for the end of a pause."""

    def __init__(self, hearing: SpeechDetector, clock: Clock) -> None:
        self._hearing, self._clock = hearing, clock
        self._pace = ArrivalPace()
        self._heard_at = 0.0
        self._due: float | None = None
        self._is_other = asyncio.Event()
        "Set when it is due at another time."

    def came(self, samples: int) -> None:
        """The next frame, before it is heard: it knows better than any clock."""
        self._put(None)
        self._heard_at = self._clock.now()
        self._pace.push(self._heard_at, samples)

    def settle(self) -> None:
        """Set the timer, if the end is near. To be called whenever that may have changed."""
        missing = self._hearing.missing
        if missing is None or not self._pace.is_live:
            self._put(None)
        else:
            left = max(0, missing - self._hearing.waiting)
            self._put(self._heard_at + left / ASR_RATE_HZ)

    def is_due_within(self, seconds: float) -> bool:
        """If nothing else is heard."""
        return self._due is not None and self._due - self._clock.now() <= seconds

    async def run(self, end: Callable[[], None]) -> None:
        """Call `end` when the silence is over, if no frame came until then."""
        while True:
            await self._is_other.wait()
            self._is_other.clear()
            if self._due is None:
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(self._due - self._clock.now()):
                    await self._is_other.wait()
                    continue
            self._due = None
            end()

    def _put(self, due: float | None) -> None:
        if due != self._due:
            self._due = due
            self._is_other.set()
