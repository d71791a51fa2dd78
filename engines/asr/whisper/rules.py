"""What decides how one model listens and which answers count: settings and notes, in one value."""

from dataclasses import dataclass

from engines.base import AsrPadding

ALWAYS: tuple[AsrPadding, ...] = ("max", "bucket", "longest")
"Any weights can be used with these."

TAKES_ALL = 1.0
"A `no_speech_threshold` from which on nothing is rejected: no probability is above it."


@dataclass(frozen=True, slots=True)
class DecodeRules:
    """As `settings.Settings` and `settings.ModelNotes` describe them; without libraries."""

    padding: AsrPadding = "max"
    "Where a request asks for none."
    paddings: tuple[AsrPadding, ...] = ALWAYS
    beam_size: int = 1
    temperatures: tuple[float, ...] = (0.0,)
    no_speech_threshold: float = 0.6
    log_prob_threshold: float = -1.0
    min_confidence: float = 0.25
    max_compression_ratio: float = 2.4
