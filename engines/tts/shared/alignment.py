"""Computes the times of words from the times of phonemes. Pure.

Phonemizers write a space between words, but they join some (`of the`) and read others as several
(`3.5`). If the numbers of words differ, the words share the time in proportion to their letters.
"""

import re
from collections.abc import Sequence
from itertools import accumulate

from engines.tts.shared.synthesis_thread import WordTiming

Phoneme = tuple[str, float]
"A phoneme and its duration in ms."

_WORD = re.compile(r"\S+")


def word_timings(clause: str, sentences: Sequence[Sequence[Phoneme]]) -> tuple[WordTiming, ...]:
    """Returns the words of `clause` with their times.

    sentences: all phonemes of the clause in their order, one list for each sentence.
    """
    words = [match for match in _WORD.finditer(clause) if any(map(str.isalnum, match.group()))]
    if not words:
        return ()
    spans = _phoneme_spans(sentences)
    if len(spans) != len(words):
        spans = _proportional_spans([len(word.group()) for word in words], _total_ms(sentences))
    ends = [*(word.start() for word in words[1:]), len(clause)]
    return tuple(
        WordTiming(len(clause[:end].rstrip()) if end < len(clause) else end, start_ms, end_ms)
        for end, (start_ms, end_ms) in zip(ends, spans, strict=True)
    )


def _phoneme_spans(sentences: Sequence[Sequence[Phoneme]]) -> list[tuple[float, float]]:
    """Returns start and end of each group of phonemes between spaces, in ms."""
    spans = list[tuple[float, float]]()
    position_ms = end_ms = 0.0
    word_start_ms: float | None = None
    for sentence in sentences:
        for phoneme, ms in sentence:
            if any(map(str.isalnum, phoneme)):
                word_start_ms = position_ms if word_start_ms is None else word_start_ms
                end_ms = position_ms + ms
            elif phoneme.isspace() and word_start_ms is not None:
                spans.append((word_start_ms, end_ms))
                word_start_ms = None
            position_ms += ms
        if word_start_ms is not None:
            spans.append((word_start_ms, end_ms))
            word_start_ms = None
    return spans


def _proportional_spans(sizes: Sequence[int], total_ms: float) -> list[tuple[float, float]]:
    """Returns start and end of each word in ms. `sizes`: numbers of letters of the words."""
    ends = [total_ms * size / sum(sizes) for size in accumulate(sizes)]
    return list(zip([0.0, *ends], ends, strict=False))


def _total_ms(sentences: Sequence[Sequence[Phoneme]]) -> float:
    return sum(ms for sentence in sentences for _, ms in sentence)
