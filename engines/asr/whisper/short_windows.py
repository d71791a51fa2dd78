"""Decides whether the text of a window shorter than 30 s can be trusted. Pure.

OpenAI's weights were trained on windows of 30 s. In shorter ones they sometimes repeat a sentence
until the answer is full, or write nothing. A window with doubtful text is decoded again in 30 s.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from engines.base import ShortWindowOutcome

if TYPE_CHECKING:
    from engines.asr.whisper.temperature_fallback import FallbackThresholds, WindowResult

_SPARE_TOKENS, _TOKENS_PER_S = 10, 7
"""Longest trusted answer. English speech has 3 to 5 tokens per second; the spare ones are for short
commands. Faster speech, and scripts with more tokens per word, only cost a second decoding."""

_REPEATED_TOKENS = 5
"""Number of tokens in a row that may occur only once. Two clauses of a command often begin with the
same three or four (`turn on the`, `set the light to`)."""


def max_trusted_tokens(duration_s: float) -> int:
    """Returns the length at which the decoding of a short window stops.

    duration_s: length of the audio in the window, in seconds.
    """
    return _SPARE_TOKENS + int(duration_s * _TOKENS_PER_S)


_DOUBLED_TOKENS = 3
"Fewest tokens at the end of a text that count as repeated, such as `Thank you.`"


def repeats_itself(tokens: Sequence[int]) -> bool:
    """Returns True if the text or its end is doubled, or if some tokens in a row occur twice."""
    count = len(tokens)
    half = count // 2
    if count > 2 and tokens[:half] == tokens[count - half :]:
        return True
    for size in range(_DOUBLED_TOKENS, half + 1):
        if tokens[count - size :] == tokens[count - 2 * size : count - size]:
            return True
    runs = [
        tuple(tokens[at : at + _REPEATED_TOKENS])
        for at in range(len(tokens) - _REPEATED_TOKENS + 1)
    ]
    return len(set(runs)) < len(runs)


_WORD = re.compile(r"[\w']+")
_DOUBLED_WORDS = 2
"""Fewest words at the end of a text that count as repeated. A user may say one word twice (`no,
no`); a second decoding would keep it."""


def doubles_words(text: str) -> bool:
    """Returns True if the text, or an end of two words or more, is there twice in a row.

    Unlike tokens, words are equal whether they begin a sentence or not: in `then click New Project.
    Then click New Project.` the first token differs.
    """
    words = _WORD.findall(text.lower())
    count = len(words)
    half = count // 2
    if half and words[:half] == words[half:]:
        return True
    return any(
        words[count - size :] == words[count - 2 * size : count - size]
        for size in range(_DOUBLED_WORDS, half + 1)
    )


def short_window_outcome(
    result: "WindowResult",
    text_tokens: Sequence[int],
    limits: "FallbackThresholds",
    duration_s: float,
) -> ShortWindowOutcome:
    """Returns `accepted`, or the reason for which the window is decoded again in 30 s.

    text_tokens: the tokens of the answer without timestamps. limits: the scores from which on words
    are unsure. duration_s: length of the audio in the window, in seconds.
    """
    if len(result.tokens) >= max_trusted_tokens(duration_s):
        return "too_long"
    is_repeated = repeats_itself(text_tokens) or doubles_words(result.text)
    if is_repeated or result.compression_ratio > limits.compression_ratio:
        return "repeated"
    if not result.text.strip():
        return "empty"
    if result.avg_logprob < limits.log_prob:
        return "unsure"
    return "no_speech" if result.no_speech_prob > limits.no_speech else "accepted"
