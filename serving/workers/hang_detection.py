"""Limits after which a model worker counts as hung (a call takes too long) or broken (calls
fail)."""

from collections.abc import Sequence

from core.audio import ASR_RATE_HZ
from engines.base import AsrItem

FIRST_CALL_S = 60.0
"""Base limit of the first calls. A large Whisper pads a word to 30 s, and takes tens of seconds for
it on a small machine."""
PER_AUDIO_S = 2.0
"""Seconds added to FIRST_CALL_S per second of audio. A model that is slower than half the speed of
speech cannot be used."""

LEAST_S = 10.0
"Part of the limit that does not depend on the calls: a busy or swapping machine stops for seconds."
FACTOR = 20.0
"""Multiple of the slowest call so far that is added to LEAST_S. Fallback temperatures and wide
beams multiply the work."""

FAILURES = 3
"""Failed calls in a row, by errors of the library, after which the worker is restarted. A GPU that
failed once fails until its process is a new one."""


class HangDetector:
    """Learns time limits from the calls that were answered. The first call is left out because it
    is cold and slow."""

    def __init__(self) -> None:
        self._is_cold = True
        self._failures = 0
        self._slowest_item_s: float | None = None
        "Longest time of a call divided by its number of items; None until one was measured."
        self._slowest_pace = 0.0
        "Longest time of a call per second of audio."

    def limit_s(self, items: Sequence[AsrItem]) -> float:
        """Returns the time limit for a call with these items."""
        audio_s = _audio_s(items)
        most_s = FIRST_CALL_S + PER_AUDIO_S * audio_s
        if self._slowest_item_s is None:
            return most_s
        slow_s = max(self._slowest_item_s * len(items), self._slowest_pace * audio_s)
        return min(LEAST_S + FACTOR * slow_s, most_s)

    def learn(self, items: Sequence[AsrItem], seconds: float) -> None:
        """Records a call that was answered after `seconds`."""
        self.succeed()
        if self._is_cold:
            self._is_cold = False
            return
        self._slowest_item_s = max(self._slowest_item_s or 0.0, seconds / len(items))
        if audio_s := _audio_s(items):
            self._slowest_pace = max(self._slowest_pace, seconds / audio_s)

    def succeed(self) -> None:
        """Records a call that was answered, whose time says nothing."""
        self._failures = 0

    def record_failure(self) -> bool:
        """Records a failed call. True if the worker must be restarted."""
        self._failures = (self._failures + 1) % FAILURES
        return self._failures == 0


def _audio_s(items: Sequence[AsrItem]) -> float:
    return sum(len(item.pcm) for item in items) / ASR_RATE_HZ
