"""Code that both Whisper engines share: from an item to tasks for a decoder, and back to a result.

Each engine has its own code to encode windows and to search for the best text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from core.errors import EngineError
from engines.asr.whisper.features import Features
from engines.asr.whisper.prompt import LanguageDetection, PromptBuilder
from engines.asr.whisper.segments import FRAME_S, TokenSegment, cut, last_end_s
from engines.asr.whisper.temperature_fallback import FallbackThresholds, WindowResult, WindowTask
from engines.asr.whisper.tokenizer import Tokenizer
from engines.asr.whisper.windows import FRAME_SAMPLES, MAX_ITEM_MS, MAX_ITEM_SAMPLES
from engines.asr.whisper.word_timestamps import AlignmentWindow
from engines.base import (
    AsrInfo,
    AsrItem,
    AsrOptions,
    AsrPadding,
    AsrResult,
    Segment,
    TokenLogprob,
    Word,
)

# Rules of one model: its settings and its notes (`earshot.json`) in one value.

ALWAYS: tuple[AsrPadding, ...] = ("max", "bucket", "longest")
"Paddings that work with any weights."

TAKES_ALL = 1.0
"Value of `no_speech_threshold` from which on nothing is rejected: no probability exceeds it."


@dataclass(frozen=True, slots=True)
class DecodeRules:
    """Rules of one model, which `Settings` and `ModelNotes` in `model_info` describe."""

    padding: AsrPadding = "max"
    "Padding of requests that name none."
    paddings: tuple[AsrPadding, ...] = ALWAYS
    beam_size: int = 1
    temperatures: tuple[float, ...] = (0.0,)
    no_speech_threshold: float = 0.6
    log_prob_threshold: float = -1.0
    min_confidence: float = 0.25
    max_compression_ratio: float = 2.4


# State of one item during its decoding.

MAX_PASSES = 32
"Most windows per item. Each advances by a timestamp at least; if more are needed, it is no speech."


@dataclass(slots=True)
class ItemDecode:
    """State of one item while it is decoded; used by a single `decode` call."""

    options: AsrOptions
    pcm: Pcm
    powers: Features
    "Raw features of `pcm`: log10 of the power per mel and frame."
    padding: AsrPadding
    spoken: LanguageDetection | None
    "Language of the item; None: not detected yet."
    seek: int = 0
    "First frame that is not decoded yet."
    passes: int = 0
    "Number of windows decoded so far."
    answers: list[WindowResult] = field(default_factory=list)
    "Results that were accepted."
    rejected: list[WindowResult] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    "Texts of the segments, with the spaces between them."
    segments: list[Segment] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    tokens: list[TokenLogprob] = field(default_factory=list)
    spoken_until_s: float = 0.0
    has_sure: bool = False
    "At least one accepted result has no score that says no speech."

    @property
    def frames(self) -> int:
        """Number of mel frames that hold audio; the rest of a window is silence."""
        return max(1, len(self.pcm) // FRAME_SAMPLES)

    @property
    def audio_ms(self) -> float:
        return samples_to_ms(len(self.pcm), ASR_RATE_HZ)

    @property
    def is_open(self) -> bool:
        """True while there is audio left to decode."""
        return self.seek < self.frames and self.passes < MAX_PASSES

    def add(
        self, answer: WindowResult, piece: TokenSegment, text: str, words: Sequence[Word]
    ) -> None:
        """Adds a recognised segment.

        Times are limited to the audio: alignment may put words into the silence behind it.
        """
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
        """Returns all segments as one result. unknown: language of audio that was not decoded."""
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
    """Returns the mean probability of a token, end tokens included."""
    tokens = sum(len(answer.tokens) + 1 for answer in answers)
    total = sum(answer.confidence * (len(answer.tokens) + 1) for answer in answers)
    return total / tokens if tokens else 0.0


SILENCE_PEAK = 16
"""Peak sample value below which audio is not decoded: -66 dBFS, below any microphone's own noise.
Whisper invents words for digital silence."""


class WordAligner(Protocol):
    """Interface of `word_timestamps.CrossAttentionAligner`."""

    def words(
        self, voice: AlignmentWindow, pieces: list[TokenSegment], spoken_until_s: float
    ) -> list[list[Word]]:
        """Returns the words of each segment, with times."""
        ...

    def logprobs(self, voice: AlignmentWindow, tokens: Sequence[int]) -> list[TokenLogprob]:
        """Returns the log probabilities of text tokens."""
        ...


class DecodePolicy:
    """Makes decoder tasks from items, and accepts or rejects the results, by one model's rules."""

    def __init__(
        self, tokenizer: Tokenizer, aligner: WordAligner, info: AsrInfo, rules: DecodeRules
    ) -> None:
        self._tokenizer, self._aligner = tokenizer, aligner
        self._info, self._rules = info, rules
        self._prompts = PromptBuilder(tokenizer, info.languages, "task" in info.supports)

    @property
    def unknown(self) -> LanguageDetection:
        """Language that is reported for audio that was not decoded."""
        return LanguageDetection(self._info.languages[0], 0.0)

    def check(self, item: AsrItem) -> None:
        """Raises EngineError for an item that is too long, RequestError for a bad prefix."""
        if len(item.pcm) > MAX_ITEM_SAMPLES:
            raise EngineError(
                "asr",
                self._info.name,
                f"an item of {samples_to_ms(len(item.pcm), ASR_RATE_HZ):.0f} ms; "
                f"allowed: up to {MAX_ITEM_MS:.0f}",
            )
        if item.options.prefix:
            self._prompts.prefix(item.options.prefix)

    def part(self, item: AsrItem, powers: Features) -> ItemDecode:
        """Returns the initial state of an item. powers: its raw features."""
        named = self._prompts.named_language(item.options)
        padding = item.options.padding or self._rules.padding
        if padding not in self._rules.paddings:
            padding = "longest"
        return ItemDecode(
            options=item.options,
            pcm=item.pcm,
            powers=powers,
            padding=padding,
            spoken=LanguageDetection(named, 1.0) if named else None,
        )

    def question(self, row: int, part: ItemDecode) -> WindowTask:
        """Returns the decoder task for a part's next window. row: its index in the batch."""
        options, rules = part.options, self._rules
        no_speech = options.no_speech_threshold
        spoken = part.spoken or self.unknown
        return WindowTask(
            row=row,
            start=self._prompts.start(options, spoken.language, is_first=part.seek == 0),
            beam_size=options.beam_size or rules.beam_size,
            temperatures=options.temperatures or rules.temperatures,
            thresholds=FallbackThresholds(
                compression_ratio=rules.max_compression_ratio,
                log_prob=rules.log_prob_threshold,
                no_speech=rules.no_speech_threshold if no_speech is None else no_speech,
            ),
            duration_s=(part.frames - part.seek) / 100,
        )

    def take(
        self, part: ItemDecode, question: WindowTask, answer: WindowResult, encoded: Any
    ) -> None:
        """Adds the result of a window to its part, or rejects it.

        encoded: the encoder's output for the batch, as the aligner takes it.
        """
        part.passes += 1
        if self._is_rejected(answer, question.thresholds):
            part.rejected.append(answer)
            part.seek = part.frames
        else:
            part.answers.append(answer)
            part.has_sure = part.has_sure or not _is_unsure(answer, question.thresholds)
            self._add(part, answer, encoded, question.row)

    def _is_rejected(self, answer: WindowResult, limits: FallbackThresholds) -> bool:
        """Returns True for text from noise or music.

        Such a text is a loop, or a guess, or no speech by Whisper's own rule: the no-speech
        probability is high and the words are unsure. For a model that tells noise from speech, a
        loop that ended by itself is accepted, as somebody repeats a word. A loop that was cut off
        has confidence 0, and so counts as a guess.
        """
        if not answer.text.strip() or limits.no_speech >= TAKES_ALL:
            return False
        is_loop = answer.compression_ratio > limits.compression_ratio
        return (
            (is_loop and not self._info.tells_noise)
            or answer.confidence < self._rules.min_confidence
            or (answer.no_speech_prob > limits.no_speech and answer.avg_logprob < limits.log_prob)
        )

    def _add(self, part: ItemDecode, answer: WindowResult, encoded: Any, row: int) -> None:
        """Adds an accepted result's segments, and sets the start of the next window."""
        language = part.spoken.language if part.spoken else "en"
        frames = part.frames - part.seek
        voice = AlignmentWindow(encoded, row, frames, language, part.options.task)
        pieces, following, is_complete = cut(
            answer.tokens, self._tokenizer.timestamp_begin, part.seek, frames
        )
        words: list[list[Word]] = [[] for _ in pieces]
        if part.options.timestamps == "word" and pieces:
            words = self._aligner.words(voice, pieces, part.spoken_until_s)
            part.spoken_until_s = last_end_s(pieces)
            if not is_complete and part.spoken_until_s > pieces[0]["seek"] * FRAME_S:
                following = round(part.spoken_until_s / FRAME_S)
        for piece, said in zip(pieces, words, strict=True):
            text = self._tokenizer.decode(piece["tokens"])
            if piece["start"] != piece["end"] and text.strip():
                part.add(answer, piece, text, said)
                if part.options.token_logprobs:
                    part.tokens += self._aligner.logprobs(voice, piece["tokens"])
        part.seek = following if following > part.seek else part.frames


def _is_unsure(answer: WindowResult, limits: FallbackThresholds) -> bool:
    """Returns True if one of the two scores says that it may be no speech."""
    return answer.no_speech_prob > limits.no_speech or answer.avg_logprob < limits.log_prob


def has_sound(item: AsrItem) -> bool:
    """Returns True if any sample of the item reaches SILENCE_PEAK."""
    return bool(np.abs(item.pcm.astype(np.int32)).max(initial=0) >= SILENCE_PEAK)
