"""Timer that ends a turn between two packets, by the speaker's clock.

Packets come every 20 ms, and the silence that ends a turn is over somewhere between two of them.
Waiting for the next packet gains nothing: if it holds speech, that continues after the endpoint.
The timer runs only while audio arrives in real time, as only then wall time equals audio time.
"""

from collections import deque
from collections.abc import Callable

from core.audio import ASR_RATE_HZ, ms_to_samples
from core.ports import Clock
from core.tasks import Alarm
from pipeline.user_turn.speech_detection.speech_detector import SpeechDetector

LIVE_MS = 1000
"Length of the newest audio by which real-time arrival is judged."
LEAST_PACE = 0.8
"""Least ratio of arrival time to audio length of live audio. It allows for some packets that arrive
at once after a delay; uploads are far below it."""

_LIVE = ms_to_samples(LIVE_MS, ASR_RATE_HZ)
_LEAST = ms_to_samples(LIVE_MS * LEAST_PACE, ASR_RATE_HZ)


class ArrivalPace:
    """Measures how fast audio arrives. Reads no clock: the caller passes the time."""

    def __init__(self) -> None:
        self._arrivals: deque[tuple[float, int]] = deque()
        "Arrival time in monotonic seconds, and number of samples up to then."
        self._samples = 0

    def push(self, now: float, samples: int) -> None:
        """Notes that `samples` (16 kHz) arrived at `now` (monotonic seconds)."""
        self._samples += samples
        self._arrivals.append((now, self._samples))
        while self._samples - self._arrivals[0][1] > _LIVE:
            self._arrivals.popleft()

    @property
    def is_live(self) -> bool:
        """True if the newest second of audio took about a second to arrive. False while less has
        come."""
        (first, begin), (last, end) = self._arrivals[0], self._arrivals[-1]
        sound = end - begin
        if sound < _LEAST:
            return False
        return last - first >= LEAST_PACE * sound / ASR_RATE_HZ


class EndpointTimer:
    """Calls back when the pause of one session's utterance is over, even if no frame has
    arrived."""

    def __init__(self, detector: SpeechDetector, clock: Clock) -> None:
        self._detector, self._clock = detector, clock
        self._pace = ArrivalPace()
        self._arrived_at = 0.0
        self._alarm = Alarm(clock.now)

    def frame_arrived(self, samples: int) -> None:
        """Notes that a frame of `samples` arrives, before the detector takes it. Stops the timer:
        the frame itself says more than the clock."""
        self._alarm.set(None)
        self._arrived_at = self._clock.now()
        self._pace.push(self._arrived_at, samples)

    def update(self) -> None:
        """Sets the timer if the endpoint is near, else stops it. Call it whenever that may have
        changed."""
        missing = self._detector.missing_samples
        if missing is None or not self._pace.is_live:
            self._alarm.set(None)
        else:
            left = max(0, missing - self._detector.unjudged_samples)
            self._alarm.set(self._arrived_at + left / ASR_RATE_HZ)

    def is_due_within(self, seconds: float) -> bool:
        """Returns whether the timer is due within `seconds`, if no frame arrives before."""
        due_at = self._alarm.due_at
        return due_at is not None and due_at - self._clock.now() <= seconds

    async def run(self, end: Callable[[], None]) -> None:
        """Calls `end` each time the timer is due. Runs until it is cancelled."""
        while True:
            await self._alarm.wait()
            end()
