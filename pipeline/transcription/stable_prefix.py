"""Which words of a changing hypothesis will stay: those on which two in a row agree. Pure.

LocalAgreement-2 (Liu et al. 2020; Machacek et al. 2023), on words.
"""

from dataclasses import dataclass

from pipeline.transcription.writing import words_of


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
