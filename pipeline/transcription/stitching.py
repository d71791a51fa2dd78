"""Joins the results of consecutive segments: texts are joined, and times are shifted and never go
back."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from core.audio import ASR_RATE_HZ, samples_to_ms
from engines.base import AsrResult, Segment, Word

# Scripts that put no space between words: what counts as a word, and how texts are joined. Pure.

# Thai and Lao, Burmese, Khmer, kana with CJK punctuation, ideographs, full-width forms.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3001-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"\s?(?:[{_UNSPACED}]|[^\s{_UNSPACED}]+)")
_CHARACTER = re.compile(f"[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Returns the words, each with the space before it, if any. Of an unspaced script, each
    character is a word."""
    return _WORD.findall(" ".join(text.split()))


def join_texts(texts: Iterable[str]) -> str:
    """Joins texts with a space, unless a character at the joint is of an unspaced script.

    The text decides, not its language: a translation of Chinese is English.
    """
    whole = ""
    for text in filter(None, texts):
        meets = _CHARACTER.match(text) or _CHARACTER.match(whole[-1:])
        whole += text if meets or not whole else f" {text}"
    return whole


def shift_times(result: AsrResult, start: int, samples: int) -> AsrResult:
    """Returns the result with times of the recording. The segment has `samples` samples from
    `start` on.

    Recognisers report times beyond the audio, or a word that begins before the last one ended. So
    times are limited: segments follow one another within the audio, and words within their
    segments.
    """
    start_ms = samples_to_ms(start, ASR_RATE_HZ)
    end_ms = start_ms + samples_to_ms(samples, ASR_RATE_HZ)
    segments = list(_in_order(result.segments, start_ms, end_ms))
    if result.text and not segments:
        segments = [Segment(result.text, start_ms, end_ms)]
    return replace(
        result,
        segments=tuple(segments),
        words=tuple(_within(result.words, segments, start_ms)),
    )


def without_lead(result: AsrResult, lead: int, samples: int) -> AsrResult:
    """Returns the result of audio that had `lead` samples of silence before it, with times of the
    audio alone. `samples`: its length without the silence."""
    if not (result.segments or result.words):
        return result
    end_ms, lead_ms = samples_to_ms(samples, ASR_RATE_HZ), samples_to_ms(lead, ASR_RATE_HZ)

    def moved(time_ms: float) -> float:
        return min(max(0.0, time_ms - lead_ms), end_ms)

    return replace(
        result,
        segments=tuple(
            replace(segment, start_ms=moved(segment.start_ms), end_ms=moved(segment.end_ms))
            for segment in result.segments
        ),
        words=tuple(
            replace(word, start_ms=moved(word.start_ms), end_ms=moved(word.end_ms))
            for word in result.words
        ),
    )


def stitch_results(results: Sequence[tuple[AsrResult, float]]) -> AsrResult:
    """Joins several results (at least one). Each comes with its length, as the weight of its
    confidence."""
    spoken = [(result, weight) for result, weight in results if result.text]
    # Segments without words count for the confidence only if none has words.
    judged = spoken or results
    total = sum(weight for _, weight in judged)
    first = judged[0][0]
    return AsrResult(
        text=join_texts(result.text for result, _ in spoken),
        confidence=sum(result.confidence * weight for result, weight in judged) / total
        if total
        else 0.0,
        language=first.language,
        words=tuple(word for result, _ in spoken for word in result.words),
        is_rejected=not spoken and any(result.is_rejected for result, _ in results),
        rejected_words=sum(result.rejected_words for result, _ in results),
        segments=tuple(segment for result, _ in spoken for segment in result.segments),
        tokens=tuple(token for result, _ in spoken for token in result.tokens),
        language_probability=first.language_probability,
        is_unsure=bool(spoken) and all(result.is_unsure for result, _ in spoken),
    )


def _in_order(segments: Sequence[Segment], start_ms: float, end_ms: float) -> Iterator[Segment]:
    at_ms = start_ms
    for segment in segments:
        begin_ms = min(max(segment.start_ms + start_ms, at_ms), end_ms)
        at_ms = min(max(segment.end_ms + start_ms, begin_ms), end_ms)
        yield replace(segment, start_ms=begin_ms, end_ms=at_ms)


def _within(words: Sequence[Word], segments: Sequence[Segment], start_ms: float) -> Iterator[Word]:
    """Yields each word within the segment that holds its middle, or within the next one. Times
    never go back."""
    rest, at_ms = list(segments), start_ms
    for word in words:
        middle_ms = (word.start_ms + word.end_ms) / 2 + start_ms
        while len(rest) > 1 and rest[0].end_ms < middle_ms:
            rest.pop(0)
        at_ms = max(at_ms, rest[0].start_ms)
        begin_ms = min(max(word.start_ms + start_ms, at_ms), rest[0].end_ms)
        at_ms = min(max(word.end_ms + start_ms, begin_ms), rest[0].end_ms)
        yield replace(word, start_ms=begin_ms, end_ms=at_ms)
