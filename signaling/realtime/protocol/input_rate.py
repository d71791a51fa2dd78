"""Detects a client that sends 16 kHz audio declared as 24 kHz."""

from collections import deque
from dataclasses import dataclass
from statistics import median

WINDOW_MS = 10_000
"""Span of appends that is examined, in ms: long enough that a short stutter of the network does not
count."""

MIN_APPENDS = 20
"Smallest number of appends in the window. Fewer do not show how evenly they come."

MAX_APPENDS = 2048
"""Largest number of appends in the window. A microphone sends fewer: the shortest appends of
browsers are 128 samples, 8 ms at 16 kHz, and 1,250 of them fill the window. At the limit counting
starts again."""

INTERVAL_RATIOS = (1.4, 1.6)
"""Range of the median interval between appends, divided by an append's declared length. For 16 kHz
declared as 24 kHz it is 24 / 16. For an honest client it is 1, however often it pauses."""

AUDIO_TIME_RATIOS = (0.62, 0.71)
"""Range of declared audio divided by real time in the window: 16 / 24, with some tolerance for its
end."""

PARAM = "session.audio.input.format"
"Field that the warning names."

WARNING = (
    "The audio comes at two thirds of real time. That happens if 16 kHz audio is declared as"
    " 24 kHz: it is heard too fast. If it is 16 kHz, send session.audio.input.format"
    ' {"type": "audio/pcm", "rate": 16000}.'
)


@dataclass(frozen=True, slots=True)
class _AudioAppend:
    """Arrival of one append."""

    interval_ms: float
    "Time since the previous append."
    audio_ms: float


class SampleRateCheck:
    """Examines the appends of one client. It reads no clock."""

    def __init__(self) -> None:
        self._arrivals: deque[_AudioAppend] = deque()
        self._wall_ms = self._audio_ms = 0.0
        "Sums over the window: a new sum for each append would take longer and longer."
        self._last_ms: float | None = None
        self._is_reported = False

    def is_suspect(self, now_ms: float, audio_ms: float) -> bool:
        """Adds an append. Returns True once, if the audio is evidently 16 kHz. `now_ms`: time of
        its arrival. `audio_ms`: its length at the declared rate."""
        last_ms, self._last_ms = self._last_ms, now_ms
        if self._is_reported or last_ms is None or audio_ms <= 0:
            return False
        self._add(_AudioAppend(now_ms - last_ms, audio_ms))
        if self._wall_ms < WINDOW_MS or len(self._arrivals) < MIN_APPENDS:
            return False
        self._is_reported = self._is_slow()
        self._drop_oldest()
        return self._is_reported

    def _add(self, arrival: _AudioAppend) -> None:
        # After a pause, earlier appends say nothing about the rate.
        is_pause = arrival.interval_ms >= WINDOW_MS
        if is_pause or len(self._arrivals) == MAX_APPENDS:
            self._arrivals.clear()
            self._wall_ms = self._audio_ms = 0.0
        if is_pause:
            return
        self._arrivals.append(arrival)
        self._wall_ms += arrival.interval_ms
        self._audio_ms += arrival.audio_ms

    def _drop_oldest(self) -> None:
        while self._wall_ms >= WINDOW_MS:
            oldest = self._arrivals.popleft()
            self._wall_ms -= oldest.interval_ms
            self._audio_ms -= oldest.audio_ms

    def _is_slow(self) -> bool:
        if not AUDIO_TIME_RATIOS[0] <= self._audio_ms / self._wall_ms <= AUDIO_TIME_RATIOS[1]:
            return False
        lateness = median(arrival.interval_ms / arrival.audio_ms for arrival in self._arrivals)
        return INTERVAL_RATIOS[0] <= lateness <= INTERVAL_RATIOS[1]
