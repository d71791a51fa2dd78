"""People who have taught the server their voices, and the comparison of a voice with theirs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

VoiceVector = npt.NDArray[np.float32]
"A voice as numbers, shape (dimensions,), with the Euclidean length 1."


@dataclass(frozen=True, slots=True)
class VoiceThresholds:
    """Scores from which two voices count as one. They differ from model to model. Those below are
    for GE2E; docs/speakers.md says what they cost and protect."""

    known: float = 0.72
    """Score from which a voice counts as known. Lower, and guests are called by the name of a
    person of the house; higher, and people become guests."""
    guard: float = 0.80
    """Score from which a voice may use what a guard protects. It is higher than `known`, because a
    wrong name costs more here."""
    group: float = 0.68
    """Mean cosine from which two groups of windows of a recording are of one speaker. This and the
    next one were chosen on conversations of other people than those of the figures in
    docs/speakers.md."""
    small_group: float = 0.70
    "Cosine from which the voice of a small group of windows is that of a larger one."

    @property
    def guard_part(self) -> float:
        """Score that each part of an utterance needs for a guard. Parts are shorter, so their
        scores are lower. So the words of a second person, or of a television, are noticed between
        those of a known person."""
        return round(self.guard - 0.05, 4)


GE2E_THRESHOLDS = VoiceThresholds()
"Scores of the model that is there unless another one is chosen."


@dataclass(frozen=True, slots=True)
class SpeakerProfile:
    """The voice of one person."""

    id: str
    name: str
    vector: VoiceVector = field(repr=False)


@dataclass(frozen=True, slots=True)
class SpeakerMatch:
    """The person whose voice an utterance resembles most."""

    id: str
    name: str
    score: float
    "Cosine of the two vectors, 0 to 1. 1 is the same recording."


@dataclass(frozen=True, slots=True)
class HeardVoice:
    """The voice of one utterance."""

    model: str
    "Name of the model that made the vector."
    vector: VoiceVector = field(repr=False)
    speech_ms: int
    "Length of the speech."


def mean_vector(vectors: Sequence[VoiceVector]) -> VoiceVector:
    """Returns the vector of a person of whom there are several recordings; at least one."""
    mean = np.mean(np.stack(vectors), axis=0)
    vector: VoiceVector = (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)
    return vector


def confirmed_speaker(
    parts: Sequence[VoiceVector],
    profiles: Sequence[SpeakerProfile],
    thresholds: VoiceThresholds = GE2E_THRESHOLDS,
) -> SpeakerMatch | None:
    """Returns the person whose voice surely spoke all parts of an utterance; None in any doubt.
    `parts`: vectors of the parts; without any, the result is None."""
    if not parts:
        return None
    whole = nearest_speaker(mean_vector(parts), profiles, thresholds.guard)
    matches = [nearest_speaker(part, profiles, thresholds.guard_part) for part in parts]
    is_one = whole is not None and all(match and match.id == whole.id for match in matches)
    return whole if is_one else None


def nearest_speaker(
    vector: VoiceVector,
    profiles: Iterable[SpeakerProfile],
    threshold: float = GE2E_THRESHOLDS.known,
) -> SpeakerMatch | None:
    """Returns the person whose voice is nearest; None if no score reaches the threshold. Profiles
    of another model, with another number of dimensions, are left out."""
    matches = [
        SpeakerMatch(profile.id, profile.name, round(float(vector @ profile.vector), 4))
        for profile in profiles
        if profile.vector.shape == vector.shape
    ]
    best = max(matches, key=lambda match: match.score, default=None)
    return best if best is not None and best.score >= threshold else None
