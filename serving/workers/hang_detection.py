"""When a model worker counts as hung, by how long a call takes; or as broken, by how many fail."""

from collections.abc import Sequence

from core.audio import ASR_RATE_HZ
from engines.base import AsrItem

FIRST_CALL_S = 60.0
"A large Whisper pads a word to 30 s, and takes tens of seconds for it on a small machine."
PER_AUDIO_S = 2.0
"Per second of audio: half the speed of speech is the slowest that anybody would use."

LEAST_S = 10.0
"A machine that is busy or swaps stops everything for seconds."
FACTOR = 20.0
"Of the slowest call so far: fallback temperatures and wide beams multiply the work."

FAILURES = 3
"In a row, of the library's own: a GPU that once failed fails until its process is a new one."


class HangDetector:
    """Learns from the calls that were answered, but the first: that one is cold, and slow."""

    def __init__(self) -> None:
        self._is_cold = True
        self._failures = 0
        self._slowest_item_s: float | None = None
        self._slowest_pace = 0.0
        "Seconds per second of audio."

    def limit_s(self, items: Sequence[AsrItem]) -> float:
        """For a call with these items."""
        audio_s = _audio_s(items)
        most_s = FIRST_CALL_S + PER_AUDIO_S * audio_s
        if self._slowest_item_s is None:
            return most_s
        slow_s = max(self._slowest_item_s * len(items), self._slowest_pace * audio_s)
        return min(LEAST_S + FACTOR * slow_s, most_s)

    def learn(self, items: Sequence[AsrItem], seconds: float) -> None:
        """A call was answered in time."""
        self._failures = 0
        if self._is_cold:
            self._is_cold = False
            return
        self._slowest_item_s = max(self._slowest_item_s or 0.0, seconds / len(items))
        if audio_s := _audio_s(items):
            self._slowest_pace = max(self._slowest_pace, seconds / audio_s)

    def ends(self) -> bool:
        """A call failed. True when that is enough."""
        self._failures = (self._failures + 1) % FAILURES
        return self._failures == 0


def _audio_s(items: Sequence[AsrItem]) -> float:
    return sum(len(item.pcm) for item in items) / ASR_RATE_HZ
