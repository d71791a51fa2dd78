"""When to ask for the next partial. Pure: it is told the time."""

from dataclasses import dataclass

from pipeline.transcription.stitching import words_of

EVERY_S = 0.2
"About one syllable, so that words appear as they are spoken."
SHARE = 1 / 3
"""Of the time, at most this much is spent on partials. What one costs is measured with its wait in
the queue: when more sessions speak, all of them ask less often."""
MAX_BACKOFF_S = 5.0
"After refusals in a row; one returned partial halves it again."


class PartialPacing:
    """One utterance's partials: the next is asked for only after the last one returned."""

    def __init__(self) -> None:
        self._asked = float("-inf")
        self._cost_s = 0.0
        self._backoff = 1

    def wait_s(self, now: float) -> float:
        """Seconds until the next partial may be asked for."""
        return max(0.0, self._asked + self._spacing_s() - now)

    def asked(self, now: float) -> None:
        self._asked = now

    def returned(self, now: float) -> None:
        """Costs rise at once and fall slowly: a batch that was free by chance says little."""
        cost_s = now - self._asked
        self._cost_s = max(cost_s, (self._cost_s + cost_s) / 2)
        self._backoff = max(1, self._backoff // 2)

    def refused(self) -> None:
        """Overloaded, or overtaken by something more urgent."""
        self._backoff = min(32, self._backoff * 2)

    def _spacing_s(self) -> float:
        spacing_s = max(EVERY_S, self._cost_s / SHARE)
        return max(spacing_s, min(spacing_s * self._backoff, MAX_BACKOFF_S))


# Which words of a changing hypothesis will stay: those on which two in a row agree. Pure.
#
# LocalAgreement-2 (Liu et al. 2020; Machacek et al. 2023), on words.


@dataclass(frozen=True, slots=True)
class PartialHypothesis:
    stable: str
    unstable: str


class StablePrefix:
    """Feed hypotheses of growing audio; `stable` only ever grows."""

    def __init__(self) -> None:
        self._stable: list[str] = []
        self._last: list[str] = []

    def push(self, text: str) -> PartialHypothesis:
        words = words_of(text)
        agreed = 0
        for ours, theirs in zip(words, self._last, strict=False):
            if ours != theirs:
                break
            agreed += 1
        self._last = words
        # A hypothesis that turns against its own stable words is shown after them, not instead:
        # what a client has been told to be stable stays.
        if agreed > len(self._stable) and words[: len(self._stable)] == self._stable:
            self._stable = words[:agreed]
        return PartialHypothesis(
            "".join(self._stable), "".join(words[len(self._stable) :]).lstrip()
        )
