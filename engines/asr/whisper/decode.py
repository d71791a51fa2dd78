"""Makes decoder tasks from items, and results from decoded windows, for both Whisper engines.

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
from engines.asr.whisper.segments import FRAME_S, TokenSegment, last_end_s, split_segments
from engines.asr.whisper.short_windows import short_window_outcome
from engines.asr.whisper.temperature_fallback import FallbackThresholds, WindowResult, WindowTask
from engines.asr.whisper.tokenizer import Tokenizer
from engines.asr.whisper.windows import (
    FRAME_SAMPLES,
    MAX_ITEM_MS,
    MAX_ITEM_SAMPLES,
    WINDOW_FRAMES,
    window_frames,
)
from engines.asr.whisper.word_timestamps import AlignmentWindow
from engines.base import (
    AsrInfo,
    AsrItem,
    AsrOptions,
    AsrPadding,
    AsrResult,
    Segment,
    ShortWindowOutcome,
    TokenLogprob,
    Word,
)

UNIVERSAL_PADDINGS: tuple[AsrPadding, ...] = ("max", "bucket", "longest")
"Paddings that work with any weights."

NO_REJECTION_THRESHOLD = 1.0
"Value of `no_speech_threshold` from which on nothing is rejected: no probability exceeds it."


@dataclass(frozen=True, slots=True)
class DecodeRules:
    """Rules of one model: the values of `Settings` and `ModelNotes` in `model_info`."""

    padding: AsrPadding = "max"
    "Padding of requests that name none."
    paddings: tuple[AsrPadding, ...] = UNIVERSAL_PADDINGS
    beam_size: int = 1
    temperatures: tuple[float, ...] = (0.0,)
    no_speech_threshold: float = 0.6
    log_prob_threshold: float = -1.0
    min_confidence: float = 0.25
    max_compression_ratio: float = 2.4


MAX_WINDOWS = 32
"Most windows per item. Only audio without speech would need more."


@dataclass(slots=True)
class ItemDecode:
    """State of one item while it is decoded; used by a single `decode` call."""

    options: AsrOptions
    pcm: Pcm
    powers: Features
    "Raw features of `pcm`: log10 of the power per mel and frame."
    padding: AsrPadding
    language_detection: LanguageDetection | None
    "Language of the item; None: not detected yet."
    is_final: bool = True
    "False: the audio grows, and the next decode replaces this one (see `AsrItem.is_final`)."
    seek: int = 0
    "First frame that is not decoded yet."
    window_count: int = 0
    "Number of windows decoded so far."
    needs_full_window: bool = False
    "True: the text of a short window was doubtful, so the same audio is decoded again in 30 s."
    short_windows: list[ShortWindowOutcome] = field(default_factory=list)
    accepted: list[WindowResult] = field(default_factory=list)
    "Results that were accepted."
    rejected: list[WindowResult] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    "Texts of the segments, with the spaces between them."
    segments: list[Segment] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    tokens: list[TokenLogprob] = field(default_factory=list)
    spoken_until_s: float = 0.0
    "End of the last word so far."
    has_confident: bool = False
    "At least one accepted result has no score that says no speech."

    @property
    def frames(self) -> int:
        """Number of mel frames that hold audio; the rest of a window is silence."""
        return max(1, len(self.pcm) // FRAME_SAMPLES)

    @property
    def audio_ms(self) -> float:
        return samples_to_ms(len(self.pcm), ASR_RATE_HZ)

    @property
    def next_window_frames(self) -> int:
        """Length of the next window in mel frames."""
        samples = len(self.pcm) - self.seek * FRAME_SAMPLES
        return window_frames(samples, "max" if self.needs_full_window else self.padding)

    @property
    def is_open(self) -> bool:
        """True while there is audio left to decode."""
        return self.seek < self.frames and self.window_count < MAX_WINDOWS

    def add_segment(
        self, result: WindowResult, segment: TokenSegment, text: str, words: Sequence[Word]
    ) -> None:
        """Adds a recognised segment.

        Times are limited to the audio: alignment may put words into the silence behind it.
        """
        self.texts.append(text)
        start_ms = self._clamped_ms(1000 * segment["start"])
        self.segments.append(
            Segment(
                text=text.strip(),
                start_ms=start_ms,
                end_ms=max(start_ms, self._clamped_ms(1000 * segment["end"])),
                tokens=tuple(segment["tokens"]),
                temperature=result.temperature,
                avg_logprob=result.avg_logprob,
                compression_ratio=result.compression_ratio,
                no_speech_prob=result.no_speech_prob,
            )
        )
        self.words += [
            replace(w, start_ms=self._clamped_ms(w.start_ms), end_ms=self._clamped_ms(w.end_ms))
            for w in words
        ]

    def result(self, unknown: LanguageDetection) -> AsrResult:
        """Returns all segments as one result. unknown: language of audio that was not decoded."""
        text = "".join(self.texts).strip()
        detection = self.language_detection or unknown
        return AsrResult(
            text=text,
            confidence=_confidence(self.accepted if text else self.accepted or self.rejected),
            language=detection.language,
            words=tuple(self.words),
            is_rejected=not text and bool(self.rejected),
            rejected_words=sum(len(window.text.split()) for window in self.rejected),
            segments=tuple(self.segments),
            tokens=tuple(self.tokens),
            language_probability=detection.probability,
            is_unsure=bool(text) and not self.has_confident,
            short_windows=tuple(self.short_windows),
        )

    def _clamped_ms(self, time_ms: float) -> float:
        return min(float(time_ms), self.audio_ms)


def _confidence(accepted: Sequence[WindowResult]) -> float:
    """Returns the mean probability of a token, end tokens included."""
    tokens = sum(len(result.tokens) + 1 for result in accepted)
    total = sum(result.confidence * (len(result.tokens) + 1) for result in accepted)
    return total / tokens if tokens else 0.0


SILENCE_PEAK = 16
"""Peak sample value below which audio is not decoded: -66 dBFS, below any microphone's own noise.
Whisper invents words for digital silence."""


class WordAligner(Protocol):
    """Interface of `word_timestamps.CrossAttentionAligner`."""

    def words(
        self, window: AlignmentWindow, segments: list[TokenSegment], spoken_until_s: float
    ) -> list[list[Word]]:
        """Returns the words of each segment, with times."""
        ...

    def logprobs(self, window: AlignmentWindow, tokens: Sequence[int]) -> list[TokenLogprob]:
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
    def unknown_language(self) -> LanguageDetection:
        """Language that is reported for audio that was not decoded."""
        return LanguageDetection(self._info.languages[0], 0.0)

    def check(self, item: AsrItem) -> None:
        """Raises EngineError for an item that is too long, RequestError for a bad prefix."""
        if len(item.pcm) > MAX_ITEM_SAMPLES:
            raise EngineError(
                "asr",
                self._info.name,
                f"the item has {samples_to_ms(len(item.pcm), ASR_RATE_HZ):.0f} ms; "
                f"allowed: up to {MAX_ITEM_MS:.0f}",
            )
        if item.options.prefix:
            self._prompts.prefix_tokens(item.options.prefix)

    def start_item(self, item: AsrItem, powers: Features) -> ItemDecode:
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
            language_detection=LanguageDetection(named, 1.0) if named else None,
            is_final=item.is_final,
        )

    def window_task(self, row: int, item_decode: ItemDecode) -> WindowTask:
        """Returns the decoder task for the next window of an item. row: its index in the batch."""
        options, rules = item_decode.options, self._rules
        no_speech_threshold = options.no_speech_threshold
        temperatures = options.temperatures or rules.temperatures
        is_guarded = self._is_guarded(item_decode)
        detection = item_decode.language_detection or self.unknown_language
        return WindowTask(
            row=row,
            prompt=self._prompts.build(options, detection.language, is_first=item_decode.seek == 0),
            beam_size=options.beam_size or rules.beam_size,
            # What fails in a short window is decoded in 30 s, not at a higher temperature.
            temperatures=temperatures[:1] if is_guarded else temperatures,
            thresholds=FallbackThresholds(
                compression_ratio=rules.max_compression_ratio,
                log_prob=rules.log_prob_threshold,
                no_speech=rules.no_speech_threshold
                if no_speech_threshold is None
                else no_speech_threshold,
            ),
            duration_s=(item_decode.frames - item_decode.seek) / 100,
            is_guarded=is_guarded,
        )

    def _is_guarded(self, item_decode: ItemDecode) -> bool:
        """Returns True if the next window is short, and the weights were not trained for that.

        `bucket` has no second decoding: a client that chooses it wants a decode of constant cost.
        """
        is_trained = "nopad" in self._rules.paddings
        is_short = item_decode.next_window_frames < WINDOW_FRAMES
        return is_short and item_decode.padding == "longest" and not is_trained

    def add_result(
        self,
        item_decode: ItemDecode,
        window_task: WindowTask,
        result: WindowResult,
        encoded: object,
    ) -> None:
        """Adds the result of a window to its item, or rejects it, or has it decoded again in 30 s.

        Doubtful text of a partial is not decoded again: 30 s cost several times as much, and the
        next partial knows more. Unsure words are kept, a loop is rejected.

        encoded: the encoder's output for the batch, as the aligner takes it.
        """
        outcome: ShortWindowOutcome = "accepted"
        if window_task.is_guarded:
            outcome = self._short_window_outcome(item_decode, window_task, result)
        if outcome != "accepted" and item_decode.is_final:
            item_decode.needs_full_window = True
            if self._prompts.named_language(item_decode.options) is None:
                item_decode.language_detection = None  # the detection read the short window, too
            return
        item_decode.needs_full_window = False
        item_decode.window_count += 1
        is_loop = outcome in ("too_long", "repeated")
        if is_loop or self._is_rejected(result, window_task.thresholds):
            item_decode.rejected.append(result)
            item_decode.seek = item_decode.frames
        else:
            item_decode.accepted.append(result)
            item_decode.has_confident = item_decode.has_confident or not _is_unsure(
                result, window_task.thresholds
            )
            self._add_segments(item_decode, result, encoded, window_task.row)

    def _short_window_outcome(
        self, item_decode: ItemDecode, window_task: WindowTask, result: WindowResult
    ) -> ShortWindowOutcome:
        """Judges the text of a short window, and notes the outcome."""
        text_tokens = [token for token in result.tokens if token < self._tokenizer.eot]
        outcome = short_window_outcome(
            result, text_tokens, window_task.thresholds, window_task.duration_s
        )
        item_decode.short_windows.append(outcome)
        return outcome

    def _is_rejected(self, result: WindowResult, limits: FallbackThresholds) -> bool:
        """Returns True for text from noise or music.

        Such a text is a loop, or a guess, or no speech by Whisper's own rule: the no-speech
        probability is high and the words are unsure. For a model that tells noise from speech, a
        loop that ended by itself is accepted, as somebody repeats a word. A loop that was cut off
        has confidence 0, and so counts as a guess.
        """
        if not result.text.strip() or limits.no_speech >= NO_REJECTION_THRESHOLD:
            return False
        is_loop = result.compression_ratio > limits.compression_ratio
        return (
            (is_loop and not self._info.tells_noise)
            or result.confidence < self._rules.min_confidence
            or (result.no_speech_prob > limits.no_speech and result.avg_logprob < limits.log_prob)
        )

    def _add_segments(
        self, item_decode: ItemDecode, result: WindowResult, encoded: Any, row: int
    ) -> None:
        """Adds an accepted result's segments, and sets the start of the next window."""
        detection = item_decode.language_detection
        language = detection.language if detection else "en"
        frames = item_decode.frames - item_decode.seek
        window = AlignmentWindow(encoded, row, frames, language, item_decode.options.task)
        segments, next_frame, is_complete = split_segments(
            result.tokens, self._tokenizer.timestamp_begin, item_decode.seek, frames
        )
        words: list[list[Word]] = [[] for _ in segments]
        if item_decode.options.timestamps == "word" and segments:
            words = self._aligner.words(window, segments, item_decode.spoken_until_s)
            item_decode.spoken_until_s = last_end_s(segments)
            if not is_complete and item_decode.spoken_until_s > segments[0]["seek"] * FRAME_S:
                next_frame = round(item_decode.spoken_until_s / FRAME_S)
        for segment, segment_words in zip(segments, words, strict=True):
            text = self._tokenizer.decode(segment["tokens"])
            if segment["start"] != segment["end"] and text.strip():
                item_decode.add_segment(result, segment, text, segment_words)
                if item_decode.options.token_logprobs:
                    item_decode.tokens += self._aligner.logprobs(window, segment["tokens"])
        item_decode.seek = next_frame if next_frame > item_decode.seek else item_decode.frames


def _is_unsure(result: WindowResult, limits: FallbackThresholds) -> bool:
    """Returns True if one of the two scores says that it may be no speech."""
    return result.no_speech_prob > limits.no_speech or result.avg_logprob < limits.log_prob


def has_sound(item: AsrItem) -> bool:
    """Returns True if any sample of the item reaches SILENCE_PEAK."""
    return bool(np.abs(item.pcm.astype(np.int32)).max(initial=0) >= SILENCE_PEAK)
