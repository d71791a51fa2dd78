"""No-speech filter: decides whether words were spoken at all, by the recogniser's scores, by the
VAD's, or by both. Pure.

Recognisers make words up where nobody spoke. Large models give scores that show it
(`AsrInfo.tells_noise`), so these decide. For the others the VAD decides. A voice that the VAD was
never sure of is no voice. And words must fit into the time in which the user spoke, where each
moment counts as much as the VAD is sure of it. The VAD cannot tell singing from speech.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Literal

from core.audio import ASR_RATE_HZ, samples_to_ms
from engines.base import AsrInfo, AsrResult

NoSpeechMode = Literal["off", "normal", "strict"]
"""Handling of noise. off: nothing is filtered. normal: the recogniser's scores decide, or the VAD's
where a recogniser has no reliable scores. strict: recogniser and VAD must both find speech."""


SPEECH_PROBABILITY = 0.5
"VAD probability from which a frame counts as speech."
SUREST_MS = 200
"Length of the audio that the VAD is surest of, in one utterance: a syllable."
LEAST_SUREST = 0.5
"""Least mean probability of that audio for speech. Single spoken letters have 0.6; all but a tenth
of noise has less than 0.5."""
SILENCE = 0.35
"""Mean probability of that audio below which it is silence: the VAD would not even continue speech
that has begun. Speech has more, unless it is whispered; of nine recordings of noise one has
more."""
LEAST_SPEECH_MS = 180
"Least length of speech. The shortest spoken letters and digits have 260 ms."
LEAST_LETTER_MS = 25
"""Least certain speech per letter or digit: 40 of them in a second. Of 367 recordings of speech
none has less than 31 ms; text that was made up from noise had up to 22 ms."""


@dataclass(slots=True)
class NoSpeechFilter:
    """Collects the VAD's evidence for one utterance or segment. Every frame must be pushed."""

    speech_ms: float = 0.0
    "Length of the frames that count as speech, in ms."
    certain_ms: float = 0.0
    """Sum of speech in ms, where a frame counts from 0 to its full length as its probability goes
    from 0.5 to 1."""
    surest_frames: tuple[tuple[float, float], ...] = ()
    """Probability and length in ms of the surest frames, the surest first; together `SUREST_MS` or
    more if there is as much audio."""

    def push(self, probability: float, samples: int) -> None:
        """Adds the VAD probability (0 to 1) of the next `samples` (16 kHz)."""
        frame_ms = samples_to_ms(samples, ASR_RATE_HZ)
        if probability >= SPEECH_PROBABILITY:
            self.speech_ms += frame_ms
            self.certain_ms += frame_ms * _certainty(probability)
        kept_ms = sum(ms for _, ms in self.surest_frames)
        if kept_ms < SUREST_MS or probability > self.surest_frames[-1][0]:
            self.surest_frames = _surest_of(*self.surest_frames, (probability, frame_ms))

    @property
    def surest(self) -> float:
        """Mean probability of the surest `SUREST_MS`; what is missing of that length counts as
        0."""
        left, total = float(SUREST_MS), 0.0
        for probability, ms in self.surest_frames:
            total += probability * min(ms, left)
            left = max(0.0, left - ms)
        return total / SUREST_MS

    @property
    def is_silence(self) -> bool:
        """True if the VAD saw nothing that could be a voice. Clean speech never looks like that,
        but a whisper may: this alone is too little to reject text that a recogniser is sure of."""
        return self.surest < SILENCE

    @property
    def is_none(self) -> bool:
        """True if nobody spoke, as far as the VAD alone knows. Then a recogniser that cannot
        tell noise from speech need not decode it."""
        return self.surest < LEAST_SUREST or self.speech_ms < LEAST_SPEECH_MS

    def with_former(self, former: "NoSpeechFilter") -> "NoSpeechFilter":
        """Returns the evidence of former audio and of this together."""
        return NoSpeechFilter(
            former.speech_ms + self.speech_ms,
            former.certain_ms + self.certain_ms,
            _surest_of(*former.surest_frames, *self.surest_frames),
        )

    def allows(self, text: str) -> bool:
        """Returns whether a text of this length can have been spoken in this time."""
        letters = sum(character.isalnum() for character in text)
        return not self.is_none and self.certain_ms >= LEAST_LETTER_MS * letters


def _surest_of(*frames: tuple[float, float]) -> tuple[tuple[float, float], ...]:
    """Returns the frames with the highest probability, in the form of
    `NoSpeechFilter.surest_frames`."""
    kept, total_ms = [], 0.0
    for frame in sorted(frames, reverse=True):
        if total_ms >= SUREST_MS:
            break
        kept.append(frame)
        total_ms += frame[1]
    return tuple(kept)


def _certainty(probability: float) -> float:
    return (probability - SPEECH_PROBABILITY) / (1 - SPEECH_PROBABILITY)


class NoSpeechCriterion(Enum):
    """Scores that decide whether the user spoke."""

    NONE = auto()
    "No scores: nothing is filtered."
    RECOGNISER = auto()
    "The recogniser's own scores. Where they disagree, the VAD must have seen something."
    BOTH = auto()
    "The recogniser and the VAD must both find speech."


def no_speech_criterion(
    mode: NoSpeechMode, info: AsrInfo, no_speech_threshold: float | None
) -> NoSpeechCriterion:
    """Returns which scores decide for this recogniser. `no_speech_threshold`: 0 to 1, from the
    request; it takes precedence over the configured mode, and 1 turns the filter off."""
    if no_speech_threshold is not None:
        is_off = no_speech_threshold >= 1
    else:
        is_off = mode == "off" or (mode == "normal" and info.rejects_nothing)
    if is_off:
        return NoSpeechCriterion.NONE
    return (
        NoSpeechCriterion.RECOGNISER
        if mode != "strict" and info.tells_noise
        else NoSpeechCriterion.BOTH
    )


def is_spoken(result: AsrResult, evidence: NoSpeechFilter, criterion: NoSpeechCriterion) -> bool:
    """Returns whether the words of the result were spoken."""
    if criterion is NoSpeechCriterion.BOTH:
        return evidence.allows(result.text)
    return criterion is NoSpeechCriterion.NONE or not (result.is_unsure and evidence.is_silence)


def filter_no_speech(
    result: AsrResult, evidence: NoSpeechFilter, criterion: NoSpeechCriterion
) -> AsrResult:
    """Returns the result, or an empty one if it was not spoken."""
    return result if is_spoken(result, evidence, criterion) else rejected_result(result)


def rejected_result(result: AsrResult) -> AsrResult:
    """Returns an empty result in place of this one, marked as rejected."""
    return replace(
        result,
        text="",
        words=(),
        segments=(),
        tokens=(),
        is_rejected=True,
        rejected_words=result.rejected_words + len(result.text.split()),
    )


def no_speech_result(language: str) -> AsrResult:
    """Returns the result for a segment in which nobody spoke."""
    return AsrResult("", 0.0, language, is_rejected=True, language_probability=0.0)
