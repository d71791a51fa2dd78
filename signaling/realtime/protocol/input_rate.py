"""Notices a client that sends 16 kHz where 24 kHz is understood: its sound is heard too fast."""

from collections import deque
from dataclasses import dataclass
from statistics import median

WINDOW_MS = 10_000
"Of arrivals that are looked at: long enough that no short stutter of a network counts."

MIN_APPENDS = 20
"Fewer say nothing about how evenly they come."

MAX_APPENDS = 2048
"""More within the window come from no microphone: the shortest appends of browsers are 128 samples,
at 16 kHz 8 ms; 1,250 of them fill it. After so many the count begins anew."""

LATENESS = (1.4, 1.6)
"""What the usual append of such a client takes, in its own length: 24 / 16. One of an honest client
takes its length, however often the client pauses in between."""

SHARE = (0.62, 0.71)
"How much sound has come in that time: 16 / 24, and a little for where the window ends."

PARAM = "session.audio.input.format"

WARNING = (
    "The audio comes at two thirds of real time, as 16 kHz does that is read as 24 kHz: it is heard"
    " too fast. If it is 16 kHz, send session.audio.input.format"
    ' {"type": "audio/pcm", "rate": 16000}.'
)


@dataclass(frozen=True, slots=True)
class _AudioAppend:
    interval_ms: float
    "Since the append before."
    audio_ms: float


class SampleRateCheck:
    """The appends of one client. It reads no clock."""

    def __init__(self) -> None:
        self._arrivals: deque[_AudioAppend] = deque()
        self._wall_ms = self._audio_ms = 0.0
        "Sums over the arrivals: a sum anew for each append would take ever longer."
        self._last_ms: float | None = None
        self._is_told = False

    def is_suspect(self, now_ms: float, audio_ms: float) -> bool:
        """Takes an append that came now. True once: the sound is evidently 16 kHz."""
        last_ms, self._last_ms = self._last_ms, now_ms
        if self._is_told or last_ms is None or audio_ms <= 0:
            return False
        self._add(_AudioAppend(now_ms - last_ms, audio_ms))
        if self._wall_ms < WINDOW_MS or len(self._arrivals) < MIN_APPENDS:
            return False
        self._is_told = self._is_slow()
        self._drop_oldest()
        return self._is_told

    def _add(self, arrival: _AudioAppend) -> None:
        # After a pause, what was before says nothing any more.
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
        if not SHARE[0] <= self._audio_ms / self._wall_ms <= SHARE[1]:
            return False
        lateness = median(one.interval_ms / one.audio_ms for one in self._arrivals)
        return LATENESS[0] <= lateness <= LATENESS[1]
