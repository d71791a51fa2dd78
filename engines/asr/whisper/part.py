"""One item on its way through the decoder: what was heard of it so far, and what that comes to."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from engines.asr.whisper.features import Features
from engines.asr.whisper.language import LanguageDetection
from engines.asr.whisper.segments import TokenSegment
from engines.asr.whisper.temperature_fallback import WindowResult
from engines.asr.whisper.windows import FRAME_SAMPLES
from engines.base import AsrOptions, AsrPadding, AsrResult, Segment, TokenLogprob, Word

MAX_PASSES = 32
"Each hears at least one timestamp more; what needs so many is no speech."


@dataclass(slots=True)
class ItemDecode:
    """Owned by the one `decode` call that made it."""

    options: AsrOptions
    pcm: Pcm
    powers: Features
    "Raw features of `pcm`."
    padding: AsrPadding
    spoken: LanguageDetection | None
    "None: to be detected."
    seek: int = 0
    "First frame that is still to be heard."
    passes: int = 0
    answers: list[WindowResult] = field(default_factory=list)
    "Those that count."
    rejected: list[WindowResult] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    "Of the segments, with the spaces between them."
    segments: list[Segment] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    tokens: list[TokenLogprob] = field(default_factory=list)
    spoken_until_s: float = 0.0
    has_sure: bool = False
    "One of the answers that count is sure that somebody spoke."

    @property
    def frames(self) -> int:
        """That hold audio; the rest of a window is silence."""
        return max(1, len(self.pcm) // FRAME_SAMPLES)

    @property
    def audio_ms(self) -> float:
        return samples_to_ms(len(self.pcm), ASR_RATE_HZ)

    @property
    def is_open(self) -> bool:
        return self.seek < self.frames and self.passes < MAX_PASSES

    def add(
        self, answer: WindowResult, piece: TokenSegment, text: str, words: Sequence[Word]
    ) -> None:
        """A segment that was heard. Times end with the audio: silence behind it has words too."""
        self.texts.append(text)
        start_ms = self._within(1000 * piece["start"])
        self.segments.append(
            Segment(
                text=text.strip(),
                start_ms=start_ms,
                end_ms=max(start_ms, self._within(1000 * piece["end"])),
                tokens=tuple(piece["tokens"]),
                temperature=answer.temperature,
                avg_logprob=answer.avg_logprob,
                compression_ratio=answer.compression_ratio,
                no_speech_prob=answer.no_speech_prob,
            )
        )
        self.words += [
            replace(w, start_ms=self._within(w.start_ms), end_ms=self._within(w.end_ms))
            for w in words
        ]

    def result(self, unknown: LanguageDetection) -> AsrResult:
        """Everything heard, as one answer; `unknown` is for audio that was not listened to."""
        text = "".join(self.texts).strip()
        spoken = self.spoken or unknown
        return AsrResult(
            text=text,
            confidence=_confidence(self.answers if text else self.answers or self.rejected),
            language=spoken.language,
            words=tuple(self.words),
            is_rejected=not text and bool(self.rejected),
            segments=tuple(self.segments),
            tokens=tuple(self.tokens),
            language_probability=spoken.probability,
            is_unsure=bool(text) and not self.has_sure,
        )

    def _within(self, time_ms: float) -> float:
        return min(float(time_ms), self.audio_ms)


def _confidence(answers: Sequence[WindowResult]) -> float:
    """Mean probability of a token, ends included."""
    tokens = sum(len(answer.tokens) + 1 for answer in answers)
    total = sum(answer.confidence * (len(answer.tokens) + 1) for answer in answers)
    return total / tokens if tokens else 0.0
