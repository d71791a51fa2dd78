"""Whether words were spoken at all, by the VAD's own evidence. Pure.

Recognisers make words up where nobody spoke, the surer the smaller they are. A voice that a VAD
never quite believed in is no voice, and words have to fit into the time in which somebody spoke,
of which every moment counts as much as the VAD is sure of it. What these rules cannot tell from
speech is singing.
"""

from dataclasses import dataclass, replace

from core.audio import ASR_RATE_HZ, samples_to_ms
from engines.base import AsrResult

SPEECH_PROBABILITY = 0.5
"From here on a frame counts as speech."
SUREST_MS = 200
"What a VAD is surest of in an utterance: a syllable."
LEAST_SUREST = 0.5
"Of their mean probability. Single spoken letters have 0.6, all but a tenth of noise has less."
LEAST_SPEECH_MS = 180
"The shortest spoken letters and digits have 260."
LEAST_LETTER_MS = 25
"""Of certain speech per letter or digit: 40 in a second. No clip of 367 has less than 31; what was
made up of noise had up to 22."""


@dataclass(slots=True)
class SpeechEvidence:
    """Of one utterance or piece: push every frame."""

    speech_ms: float = 0.0
    "In frames that count as speech."
    certain_ms: float = 0.0
    "Each of them counts from not at all to fully, as its probability goes from 0.5 to 1."
    _surest: tuple[tuple[float, float], ...] = ()
    "Probability and ms, the surest first, at least `SUREST_MS` of them if there are so many."

    def push(self, probability: float, samples: int) -> None:
        """The VAD's word on so many samples (16 kHz)."""
        frame_ms = samples_to_ms(samples, ASR_RATE_HZ)
        if probability >= SPEECH_PROBABILITY:
            self.speech_ms += frame_ms
            self.certain_ms += frame_ms * _certainty(probability)
        kept_ms = sum(ms for _, ms in self._surest)
        if kept_ms < SUREST_MS or probability > self._surest[-1][0]:
            self._keep(probability, frame_ms)

    @property
    def surest(self) -> float:
        """Mean probability of the surest `SUREST_MS`; what is missing to them counts as 0."""
        left, total = float(SUREST_MS), 0.0
        for probability, ms in self._surest:
            total += probability * min(ms, left)
            left = max(0.0, left - ms)
        return total / SUREST_MS

    @property
    def is_none(self) -> bool:
        """Nobody spoke: not worth a decode."""
        return self.surest < LEAST_SUREST or self.speech_ms < LEAST_SPEECH_MS

    def allows(self, text: str) -> bool:
        """Whether so much can have been said."""
        letters = sum(character.isalnum() for character in text)
        return not self.is_none and self.certain_ms >= LEAST_LETTER_MS * letters

    def _keep(self, probability: float, frame_ms: float) -> None:
        kept, total_ms = [], 0.0
        for one in sorted((*self._surest, (probability, frame_ms)), reverse=True):
            if total_ms >= SUREST_MS:
                break
            kept.append(one)
            total_ms += one[1]
        self._surest = tuple(kept)


def _certainty(probability: float) -> float:
    return (probability - SPEECH_PROBABILITY) / (1 - SPEECH_PROBABILITY)


def rejects_noise(no_speech_threshold: float | None) -> bool:
    """Unless the caller wants whatever the recogniser makes of it."""
    return no_speech_threshold is None or no_speech_threshold < 1


def gated(result: AsrResult, evidence: SpeechEvidence) -> AsrResult:
    """The result, or in its place none, where it cannot have been said."""
    if evidence.allows(result.text):
        return result
    return replace(result, text="", words=(), segments=(), tokens=(), is_rejected=True)


def nothing(language: str) -> AsrResult:
    """Of a piece in which nobody spoke."""
    return AsrResult("", 0.0, language, is_rejected=True, language_probability=0.0)
