"""Decides when to ask for the next partial, and finds the stable prefix of partials. Pure: the
caller passes the time in seconds."""

from dataclasses import dataclass

from pipeline.transcription.stitching import words_of

EVERY_S = 0.2
"Shortest time between partials. It is about one syllable, so words appear as they are spoken."
FIRST_EVERY_S = 0.1
"""The same while no words were found yet, so that nothing is shown. More than half of the first
partials have none, and at the usual pace the next one comes half a second later."""
MAX_EMPTY = 3
"Partials without words after which the pace is the usual one: there may be none in the sound."
SHARE = 1 / 3
"""Largest share of the time that is spent on partials. The cost of one includes its wait in the
queue: when more sessions speak, all of them ask less often."""
MAX_BACKOFF_S = 5.0
"Longest wait after refusals in a row. Each partial that returns halves the wait again."


class PartialPacing:
    """Paces the partials of one utterance. Each is requested only after the one before returned."""

    def __init__(self, usual_s: float = EVERY_S) -> None:
        """`usual_s`: shortest time between partials, up to EVERY_S."""
        self._usual_s = min(EVERY_S, usual_s)
        self._requested_at = float("-inf")
        self._cost_s = 0.0
        self._backoff = 1
        self._empty = 0
        "Number of partials without words so far; `MAX_EMPTY` once one had words."

    @property
    def every_s(self) -> float:
        """Shortest time between the ends of audio of two partials, in seconds."""
        first_s = min(FIRST_EVERY_S, self._usual_s)
        return first_s if 0 < self._empty < MAX_EMPTY else self._usual_s

    def wait_s(self, now: float) -> float:
        """Returns the seconds until the next partial may be requested."""
        return max(0.0, self._requested_at + self._spacing_s() - now)

    def requested(self, now: float) -> None:
        """Notes that a partial is requested."""
        self._requested_at = now

    def returned(self, now: float, *, has_words: bool) -> None:
        """Notes that the partial has returned, and whether words were found. The measured cost
        rises at once and falls slowly: one fast call in an idle moment says little."""
        self._empty = MAX_EMPTY if has_words else min(MAX_EMPTY, self._empty + 1)
        cost_s = now - self._requested_at
        self._cost_s = max(cost_s, (self._cost_s + cost_s) / 2)
        self._backoff = max(1, self._backoff // 2)

    def refused(self) -> None:
        """Notes that the partial was refused: by overload, or because something more urgent
        came."""
        self._backoff = min(32, self._backoff * 2)

    def _spacing_s(self) -> float:
        spacing_s = self.every_s
        if spacing_s == self._usual_s:
            spacing_s = max(spacing_s, self._cost_s / SHARE)
        return max(spacing_s, min(spacing_s * self._backoff, MAX_BACKOFF_S))


# Stable prefix of a changing hypothesis: the words on which two hypotheses in a row agree. Pure.
# This is LocalAgreement-2 (Liu et al. 2020; Machacek et al. 2023), on words.


@dataclass(frozen=True, slots=True)
class PartialHypothesis:
    """Words so far: those that will stay, and those that may change."""

    stable: str
    unstable: str


class StablePrefix:
    """Finds the stable words in hypotheses of growing audio. The stable part only grows.

    Example:

        hypothesis = prefix.push("turn on the lie")
        hypothesis = prefix.push("turn on the light")  # stable: "turn on the"
    """

    def __init__(self) -> None:
        self._stable: list[str] = []
        self._last: list[str] = []

    def push(self, text: str) -> PartialHypothesis:
        """Returns the next hypothesis, split into its stable and its unstable words."""
        words = words_of(text)
        agreed = 0
        for ours, theirs in zip(words, self._last, strict=False):
            if ours != theirs:
                break
            agreed += 1
        self._last = words
        # If a hypothesis contradicts its own stable words, its words are shown after them, not in
        # their place: what a client received as stable stays.
        if agreed > len(self._stable) and words[: len(self._stable)] == self._stable:
            self._stable = words[:agreed]
        return PartialHypothesis(
            "".join(self._stable), "".join(words[len(self._stable) :]).lstrip()
        )
