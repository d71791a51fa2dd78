"""Computes word times from the alignment of text tokens with the audio.

The rules are those of faster-whisper (`find_alignment`, `add_word_timestamps`), which cannot be
imported without CTranslate2. Words and times are the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Any, Protocol

import numpy as np

from engines.asr.whisper.segments import FRAME_S, AlignedWord, TokenSegment
from engines.asr.whisper.tokenizer import Tokenizer, byte_letters
from engines.base import AsrTask, TokenLogprob, Word

_POSITIONS_PER_S = 50
"Positions of the encoder's output per second."

_OPENING_PUNCTUATION, _CLOSING_PUNCTUATION = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"
"Punctuation that belongs to the next word, and punctuation that belongs to the previous word."

_SENTENCE_ENDS = ".。!！?？"
_MAX_MEDIAN_WORD_S = 0.7
"Upper limit for the median length of a word: longer medians come from pauses."
_MAX_TIME_DIFFERENCE_S = 0.5
"Difference from which on a segment's own time replaces that of its first or last word."


class AlignmentPath(Protocol):
    """Interface of CTranslate2's `WhisperAlignmentResult`."""

    @property
    def alignments(self) -> Sequence[tuple[int, int]]:
        """(index of the token, encoder position) along the path."""
        ...

    @property
    def text_token_probs(self) -> Sequence[float]: ...


@dataclass(slots=True)
class _TimedWord:
    """A word during alignment; punctuation is merged into its neighbours."""

    word: str
    tokens: int
    start_s: float
    end_s: float
    probability: float


def add_words(
    segments: list[TokenSegment], path: AlignmentPath, tokenizer: Tokenizer, spoken_until_s: float
) -> None:
    """Writes the words of each segment into it, and sets its times to those of its words.

    path: alignment of the text tokens of all segments in order.
    spoken_until_s: end of the previous window's last word.
    """
    counts = [len(text_tokens(segment, tokenizer)) for segment in segments]
    tokens = [token for segment in segments for token in text_tokens(segment, tokenizer)]
    words = _timed_words(path, tokenizer, tokens)
    lengths = [length for word in words if (length := word.end_s - word.start_s)]
    median_s = min(_MAX_MEDIAN_WORD_S, float(np.median(lengths)) if lengths else 0.0)
    if lengths:
        _shorten(words, 2 * median_s)
    _join_punctuation(words)
    offset_s = segments[0]["seek"] * FRAME_S
    remaining = iter(words)
    for segment, count in zip(segments, counts, strict=True):
        aligned, token_count = list[AlignedWord](), 0
        while token_count < count and (word := next(remaining, None)) is not None:
            token_count += word.tokens
            if word.word:
                aligned.append(_aligned_word(word, offset_s))
        if aligned:
            _adjust_boundary_words(segment, aligned, spoken_until_s, median_s)
            spoken_until_s = segment["end"]
        segment["words"] = aligned


def text_tokens(segment: TokenSegment, tokenizer: Tokenizer) -> list[int]:
    """Returns the tokens of a segment without timestamps."""
    return [token for token in segment["tokens"] if token < tokenizer.eot]


def _timed_words(
    path: AlignmentPath, tokenizer: Tokenizer, tokens: Sequence[int]
) -> list[_TimedWord]:
    words, parts = tokenizer.split_to_word_tokens([*tokens, tokenizer.eot])
    if len(parts) <= 1:  # only the end token
        return []
    bounds = np.cumsum([0, *(len(part) for part in parts[:-1])])
    text, audio = (np.array(side) for side in zip(*path.alignments, strict=True))
    begins = np.concatenate([[True], np.diff(text) != 0])
    times_s = audio[begins] / _POSITIONS_PER_S
    probabilities: Any = path.text_token_probs
    return [
        _TimedWord(word, len(part), times_s[first], times_s[end], np.mean(probabilities[first:end]))
        for word, part, first, end in zip(words, parts, bounds[:-1], bounds[1:], strict=False)
    ]


def _shorten(words: Sequence[_TimedWord], max_word_s: float) -> None:
    """Shortens long words at the ends of sentences, which contain a pause."""
    for before, word in pairwise(words):
        if word.end_s - word.start_s > max_word_s:
            if word.word in _SENTENCE_ENDS:
                word.end_s = word.start_s + max_word_s
            elif before.word in _SENTENCE_ENDS:
                word.start_s = word.end_s - max_word_s


def _join_punctuation(words: Sequence[_TimedWord]) -> None:
    """Merges punctuation into the next or previous word, and leaves an empty word behind."""
    following = len(words) - 1
    for i in range(len(words) - 2, -1, -1):
        word, after = words[i], words[following]
        if word.word.startswith(" ") and word.word.strip() in _OPENING_PUNCTUATION:
            after.word, word.word = word.word + after.word, ""
            after.tokens, word.tokens = word.tokens + after.tokens, 0
        else:
            following = i
    previous = 0
    for i in range(1, len(words)):
        word, before = words[i], words[previous]
        if not before.word.endswith(" ") and word.word in _CLOSING_PUNCTUATION:
            before.word, word.word = before.word + word.word, ""
            before.tokens, word.tokens = before.tokens + word.tokens, 0
        else:
            previous = i


def _aligned_word(word: _TimedWord, offset_s: float) -> AlignedWord:
    return AlignedWord(
        word=word.word,
        start=round(offset_s + word.start_s, 2),
        end=round(offset_s + word.end_s, 2),
        probability=word.probability,
    )


def _adjust_boundary_words(
    segment: TokenSegment, aligned: list[AlignedWord], spoken_until_s: float, median_s: float
) -> None:
    """Corrects the first and last word of a segment, which are often too long.

    The segment gets the times of its words, or the words get the segment's time.
    """
    first, last, max_word_s = aligned[0], aligned[-1], 2 * median_s
    is_long = first["end"] - first["start"] > max_word_s
    if len(aligned) > 1:
        is_long = is_long or aligned[1]["end"] - first["start"] > 2 * max_word_s
    if first["end"] - spoken_until_s > 4 * median_s and is_long:
        if len(aligned) > 1 and aligned[1]["end"] - aligned[1]["start"] > max_word_s:
            second = aligned[1]
            first["end"] = second["start"] = max(second["end"] / 2, second["end"] - max_word_s)
        first["start"] = max(0, first["end"] - max_word_s)
    if (
        first["end"] > segment["start"]
        and segment["start"] - _MAX_TIME_DIFFERENCE_S > first["start"]
    ):
        first["start"] = max(0, min(first["end"] - median_s, segment["start"]))
    else:
        segment["start"] = first["start"]
    if last["start"] < segment["end"] and segment["end"] + _MAX_TIME_DIFFERENCE_S < last["end"]:
        last["end"] = max(last["start"] + median_s, segment["end"])
    else:
        segment["end"] = last["end"]


# Word times and token probabilities of one window.

_MIN_PROBABILITY = 1e-10
"Least probability, so that its logarithm stays finite."


class EncodedAudio(Protocol):
    """Interface of `temperature_fallback.EncoderOutput`, or its counterpart in another engine."""

    def rows(self, wanted: Sequence[int]) -> Any:
        """Returns these windows, as the model's `align` takes them."""
        ...


@dataclass(frozen=True, slots=True)
class AlignmentWindow:
    """One encoded window of a batch."""

    encoded: EncodedAudio
    row: int
    "Index of the window in the batch."
    frames: int
    "Number of mel frames that hold audio."
    language: str
    task: AsrTask


class CrossAttentionAligner:
    """Aligns text with audio by running the decoder once more over its own answer."""

    def __init__(self, model: Any, table: Any, is_multilingual: bool) -> None:
        """model: has CTranslate2's `align`. table: a `Tokenizer` of the library `tokenizers`."""
        self._model, self._table, self._is_multilingual = model, table, is_multilingual
        self._tokenizers: dict[tuple[str, AsrTask], Tokenizer] = {}
        self._bytes = {letter: byte for byte, letter in enumerate(byte_letters())}

    def words(
        self, window: AlignmentWindow, segments: list[TokenSegment], spoken_until_s: float
    ) -> list[list[Word]]:
        """Returns the words of each segment, and sets the segments' times to those of their words.

        spoken_until_s: end of the previous window's last word.
        """
        tokenizer = self._tokenizer(window)
        text = [token for segment in segments for token in text_tokens(segment, tokenizer)]
        add_words(segments, self._alignment_path(window, text), tokenizer, spoken_until_s)
        return [
            [_word(aligned) for aligned in segment["words"] if aligned["word"].strip()]
            for segment in segments
        ]

    def logprobs(self, window: AlignmentWindow, tokens: Sequence[int]) -> list[TokenLogprob]:
        """Returns the log probabilities of the text tokens; timestamps have none."""
        tokenizer = self._tokenizer(window)
        text = [token for token in tokens if token < tokenizer.eot]
        result = self._alignment_path(window, text)
        return [
            TokenLogprob(
                self._token_bytes(token), log(min(max(probability, _MIN_PROBABILITY), 1.0))
            )
            for token, probability in zip(text, result.text_token_probs, strict=True)
        ]

    def _alignment_path(self, window: AlignmentWindow, text: Sequence[int]) -> Any:
        encoded = window.encoded.rows([window.row])
        start = self._tokenizer(window).sot_sequence
        (path,) = self._model.align(encoded, start, [text], window.frames)
        return path

    def _token_bytes(self, token: int) -> bytes:
        letters = self._table.id_to_token(token)
        return bytes(self._bytes[letter] for letter in letters)

    def _tokenizer(self, window: AlignmentWindow) -> Tokenizer:
        key = (window.language, window.task)
        if key not in self._tokenizers:
            self._tokenizers[key] = Tokenizer(
                self._table, self._is_multilingual, window.task, window.language
            )
        return self._tokenizers[key]


def _word(aligned: AlignedWord) -> Word:
    return Word(
        text=aligned["word"].strip(),
        start_ms=1000 * float(aligned["start"]),
        end_ms=1000 * float(aligned["end"]),
        confidence=min(float(aligned["probability"]), 1.0),
    )
