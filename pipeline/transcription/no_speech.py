"""Whether words were spoken at all: by the recogniser's scores, by the VAD's, or by both. Pure.

Recognisers make words up where nobody spoke. Large ones give scores that show it (`tells_noise`):
these decide. For the others the VAD decides: a voice that it never quite believed in is no voice,
and words have to fit into the time in which somebody spoke, of which every moment counts as much as
the VAD is sure of it. What the VAD cannot tell from speech is singing.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Literal

from core.audio import ASR_RATE_HZ, samples_to_ms
from engines.base import AsrInfo, AsrResult

NoSpeechMode = Literal["off", "normal", "strict"]
"""What is done about noise. off: nothing is filtered. normal: the recogniser's scores decide, the
VAD's where a recogniser has none to trust. strict: both must believe that somebody spoke."""


SPEECH_PROBABILITY = 0.5
"From here on a frame counts as speech."
SUREST_MS = 200
"What a VAD is surest of in an utterance: a syllable."
LEAST_SUREST = 0.5
"Of their mean probability. Single spoken letters have 0.6, all but a tenth of noise has less."
SILENCE = 0.35
"""Of their mean probability: below it not even speech that has begun would go on for the VAD. What
people say has more, unless they whisper; of nine recordings of noise one has."""
LEAST_SPEECH_MS = 180
"The shortest spoken letters and digits have 260."
LEAST_LETTER_MS = 25
"""Of certain speech per letter or digit: 40 in a second. No clip of 367 has less than 31; what was
made up of noise had up to 22."""


@dataclass(slots=True)
class NoSpeechFilter:
    """The VAD's evidence for one utterance or piece. Every frame is pushed."""

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
    def is_silence(self) -> bool:
        """The VAD heard nothing that could be a voice. Clean speech is never like that, a whisper
        may be: too little to reject what a recogniser is sure of."""
        return self.surest < SILENCE

    @property
    def is_none(self) -> bool:
        """Nobody spoke, as far as the VAD alone can tell: not worth the decode of a recogniser that
        cannot tell."""
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


class NoSpeechCriterion(Enum):
    """Whose word counts on whether anybody spoke."""

    NOBODY = auto()
    "What the recogniser made of it stands: nothing is filtered."
    RECOGNISER = auto()
    "Its own scores decide. Where they do not agree, the VAD must have heard something."
    BOTH = auto()
    "The recogniser and the VAD must both believe it."


def no_speech_criterion(
    mode: NoSpeechMode, info: AsrInfo, no_speech_threshold: float | None
) -> NoSpeechCriterion:
    """Who judges the results of this recogniser. `no_speech_threshold`: what a request asks for,
    which counts more than the configuration."""
    if no_speech_threshold is not None:
        is_off = no_speech_threshold >= 1
    else:
        is_off = mode == "off" or (mode == "normal" and info.takes_all)
    if is_off:
        return NoSpeechCriterion.NOBODY
    return (
        NoSpeechCriterion.RECOGNISER
        if mode != "strict" and info.tells_noise
        else NoSpeechCriterion.BOTH
    )


def is_spoken(result: AsrResult, evidence: NoSpeechFilter, judge: NoSpeechCriterion) -> bool:
    """Whether the words of the result were spoken."""
    if judge is NoSpeechCriterion.BOTH:
        return evidence.allows(result.text)
    return judge is NoSpeechCriterion.NOBODY or not (result.is_unsure and evidence.is_silence)


def filter_no_speech(
    result: AsrResult, evidence: NoSpeechFilter, judge: NoSpeechCriterion
) -> AsrResult:
    """The result; an empty one in its place, where it was not spoken."""
    return result if is_spoken(result, evidence, judge) else rejected_result(result)


def rejected_result(result: AsrResult) -> AsrResult:
    """An empty result in place of this one."""
    return replace(result, text="", words=(), segments=(), tokens=(), is_rejected=True)


def no_speech_result(language: str) -> AsrResult:
    """The result of a piece in which nobody spoke."""
    return AsrResult("", 0.0, language, is_rejected=True, language_probability=0.0)
