"""Text, words and confidence from the tokens of sherpa-onnx."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from engines.base import AsrResult, Segment, Word

WORD_STARTS = (" ", "▁")
"First characters of a token that begins a word."

FIRST_IDEOGRAPH = "\u2e80"
"First character of the scripts of East Asia, which write no spaces."

MAX_TOKEN_MS = 400.0
"""Longest time that a token is taken to last. The library tells when a token begins, and the next
one may come after a pause."""


@dataclass(frozen=True, slots=True)
class DecodedTokens:
    """Words of one utterance, as the library returns them."""

    text: str
    tokens: Sequence[str]
    starts_s: Sequence[float]
    "Start of each token in seconds; empty: the model has no times."
    log_probs: Sequence[float]
    "Natural logarithm of the probability of each token; empty: the model has none."
    durations_s: Sequence[float] = ()
    "Length of each token; empty: not known."


def to_result(
    decoded: DecodedTokens, language: str, audio_ms: float, *, is_upper_case: bool, has_words: bool
) -> AsrResult:
    """Converts what was decoded to a result. `has_words`: the words with their times are wanted."""
    text = " ".join(decoded.text.split())
    if is_upper_case:
        text = text.lower()
    if not text:
        return AsrResult("", 0.0, language)
    mean = sum(decoded.log_probs) / len(decoded.log_probs) if decoded.log_probs else 0.0
    words = _words(decoded, audio_ms, math.exp(mean), is_upper_case=is_upper_case)
    start_ms = words[0].start_ms if words else 0.0
    end_ms = words[-1].end_ms if words else audio_ms
    return AsrResult(
        text,
        math.exp(mean),
        language,
        words=words if has_words else (),
        segments=(Segment(text, start_ms, end_ms, avg_logprob=mean),),
    )


def _words(
    decoded: DecodedTokens, audio_ms: float, confidence: float, *, is_upper_case: bool
) -> tuple[Word, ...]:
    """Joins tokens to words. A word has the mean confidence of its tokens, or `confidence` if they
    have none of their own."""
    tokens, starts_s = decoded.tokens, decoded.starts_s
    if len(starts_s) != len(tokens):
        return ()
    groups: list[list[int]] = []
    for index, token in enumerate(tokens):
        begins = token.startswith(WORD_STARTS) or _is_ideograph(token)
        if begins or not groups:
            groups.append([])
        groups[-1].append(index)
    words = []
    for group in groups:
        text = "".join(tokens[index] for index in group).lstrip(" ▁")
        if not text:
            continue
        probs = [decoded.log_probs[index] for index in group if index < len(decoded.log_probs)]
        words.append(
            Word(
                text.lower() if is_upper_case else text,
                1000 * starts_s[group[0]],
                _end_ms(decoded, group[-1], audio_ms),
                math.exp(sum(probs) / len(probs)) if probs else confidence,
            )
        )
    return tuple(words)


def _end_ms(decoded: DecodedTokens, token: int, audio_ms: float) -> float:
    """Returns the end of a token: by its length, else by the start of the next one."""
    start_ms = 1000 * decoded.starts_s[token]
    if token < len(decoded.durations_s) and decoded.durations_s[token] > 0:
        return min(audio_ms, start_ms + 1000 * decoded.durations_s[token])
    is_last = token + 1 == len(decoded.starts_s)
    next_ms = audio_ms if is_last else 1000 * decoded.starts_s[token + 1]
    return max(start_ms, min(next_ms, start_ms + MAX_TOKEN_MS))


def _is_ideograph(token: str) -> bool:
    """Returns whether a token is a character of a script that writes no spaces."""
    return len(token) == 1 and token >= FIRST_IDEOGRAPH and unicodedata.category(token) == "Lo"
