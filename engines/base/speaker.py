"""Values and Protocol of models that turn a voice into a vector, by which its speaker is known
again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from core.conversation.speakers import GE2E_THRESHOLDS, VoiceThresholds


@dataclass(frozen=True, slots=True)
class SpeakerModelInfo:
    """Properties of a model that recognises speakers."""

    name: str
    "Name of the engine."
    model: str
    "Name of the model that the engine has loaded."
    dimensions: int
    "Length of a vector. Its Euclidean length is 1."
    min_speech_ms: int
    "Shortest speech, in ms, of which a vector is made."
    thresholds: VoiceThresholds = GE2E_THRESHOLDS
    "Scores from which two vectors count as one voice."
    max_batch: int = 1
    "Largest number of items in one call."
    is_incremental: bool = False
    "Always False: no state is kept between items. The scheduler reads it from every model."


@dataclass(frozen=True, slots=True)
class SpeakerItem:
    """The sound of one utterance of one person."""

    pcm: bytes
    "Little-endian int16 samples, 16 kHz, mono."


@dataclass(frozen=True, slots=True)
class VoiceQuality:
    """Properties of a recording that decide how well its speaker can be recognised."""

    speech_ms: int
    "Length of the speech in it, without silence."
    level_dbfs: float
    "Level of the speech in dB of full scale; 0 is the loudest possible. -100 for no speech."
    snr_db: float
    """Level of the speech above that of the sound between the words, in dB, 0 to 60. It is an
    estimate: it also counts the hum between the words, but no noise that only sounds with them."""


@dataclass(frozen=True, slots=True)
class SpeakerResult:
    """The vector of one item."""

    vector: bytes
    """Little-endian float32, `SpeakerModelInfo.dimensions` numbers. Empty if the item has less than
    `min_speech_ms` of speech."""
    quality: VoiceQuality


class SpeakerModel(Protocol):
    """Voice to vector, in batches. Two vectors of one person point in nearly the same direction.
    Its calls block, so it runs in a worker process."""

    info: SpeakerModelInfo
    "Properties of the loaded model."

    def embed(self, items: Sequence[SpeakerItem]) -> list[SpeakerResult]:
        """Computes the items, at most `info.max_batch`, and returns one result for each, in their
        order."""
        ...

    def close(self) -> None:
        """Frees the model. No other method may be called after it."""
        ...
