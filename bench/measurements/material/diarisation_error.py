"""Computes the diarisation error rate (DER): the share of speech that is missed, invented, or given
to the wrong speaker."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt

STEP_MS = 10
"Length of the frames that are compared."

MAX_COMPARED = 8
"Most found speakers that are tried for each real one: those who speak longest."

Turn = tuple[float, float, str]
"Start and end in ms, and the speaker."

_Frames = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DiarisationError:
    """Lengths in ms. Where two people speak at once, both count."""

    speech_ms: float
    "Real speech."
    missed_ms: float
    "Speech where nobody was found, or too few people."
    false_alarm_ms: float
    "Found speech where there is none, or too many people."
    confusion_ms: float
    "Speech that was given to the wrong person."

    def __add__(self, other: "DiarisationError") -> "DiarisationError":
        return DiarisationError(
            self.speech_ms + other.speech_ms,
            self.missed_ms + other.missed_ms,
            self.false_alarm_ms + other.false_alarm_ms,
            self.confusion_ms + other.confusion_ms,
        )

    @property
    def rate(self) -> float:
        """All errors as a share of the real speech; it may exceed 1."""
        errors_ms = self.missed_ms + self.false_alarm_ms + self.confusion_ms
        return errors_ms / self.speech_ms if self.speech_ms else 0.0


NO_ERROR = DiarisationError(0.0, 0.0, 0.0, 0.0)


def diarisation_error(
    real: Sequence[Turn], found: Sequence[Turn], *, collar_ms: float = 0.0
) -> DiarisationError:
    """Compares two lists of turns. Each real speaker gets the found one with whom the errors are
    fewest.

    `collar_ms`: time on both sides of each real start and end that does not count.
    """
    count = round(max((end for _, end, _ in (*real, *found)), default=0.0) / STEP_MS) + 1
    is_counted = np.ones(count, np.bool_)
    if collar_ms:
        for edge_ms in (edge_ms for start, end, _ in real for edge_ms in (start, end)):
            is_counted[_step(edge_ms - collar_ms) : _step(edge_ms + collar_ms)] = False
    real_frames, found_frames = _frames(real, count), _frames(found, count)
    real_frames, found_frames = real_frames[:, is_counted], found_frames[:, is_counted]
    right = _most_right(real_frames, found_frames)
    real_number, found_number = real_frames.sum(axis=0), found_frames.sum(axis=0)
    both = np.minimum(real_number, found_number).sum()
    return DiarisationError(
        speech_ms=STEP_MS * float(real_number.sum()),
        missed_ms=STEP_MS * float(np.maximum(real_number - found_number, 0).sum()),
        false_alarm_ms=STEP_MS * float(np.maximum(found_number - real_number, 0).sum()),
        confusion_ms=STEP_MS * float(both - right),
    )


def _step(time_ms: float) -> int:
    return max(0, round(time_ms / STEP_MS))


def _frames(turns: Sequence[Turn], count: int) -> _Frames:
    """Returns for each speaker the frames with speech, shape (speakers, count)."""
    speakers = sorted({speaker for _, _, speaker in turns})
    frames = np.zeros((len(speakers), count), np.bool_)
    for start_ms, end_ms, speaker in turns:
        frames[speakers.index(speaker), _step(start_ms) : _step(end_ms)] = True
    return frames


def _most_right(real: _Frames, found: _Frames) -> int:
    """Returns the number of frames that are right with the best names for the found speakers."""
    longest = np.argsort(-found.sum(axis=1))[: max(MAX_COMPARED, len(real))]
    common = real.astype(np.int64) @ found[longest].T.astype(np.int64)
    common = np.pad(common, ((0, 0), (0, max(0, len(real) - common.shape[1]))))
    choices = permutations(range(common.shape[1]), len(real))
    return max(int(common[np.arange(len(real)), choice].sum()) for choice in choices)
