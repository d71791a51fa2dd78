"""Priorities of ASR requests, and how long each may wait."""

from collections.abc import Mapping
from enum import IntEnum


class DecodePriority(IntEnum):
    """Priority of an ASR request; a smaller number is served first."""

    FINAL = 0
    "The result of an utterance that is over."
    SPECULATIVE = 1
    "The result of an utterance that is probably over."
    PARTIAL = 2
    "The text so far of an utterance that goes on."
    BATCH = 3
    "A segment of an uploaded recording."


WAIT_LIMIT_S: Mapping[DecodePriority, float] = {
    DecodePriority.PARTIAL: 1.0,
    DecodePriority.SPECULATIVE: 2.0,
    DecodePriority.FINAL: 15.0,
    DecodePriority.BATCH: 60.0,
}
"""Expected wait in seconds above which a new request is refused. Under load partials are refused
first, because newer ones follow. Then speculation, which only saves time. Then finals, when the
speaker has given up. A BATCH request comes from an HTTP client: proxies and libraries wait a
minute."""

BEGIN_SHARE = 0.5
"""Part of the limit that applies before work of many requests. Work that has begun should not be
refused half-way."""

DEADLINE_S: Mapping[DecodePriority, float] = {
    DecodePriority.PARTIAL: 2.0,
    DecodePriority.SPECULATIVE: 4.0,
    DecodePriority.FINAL: 90.0,
    DecodePriority.BATCH: 300.0,
}
"""Seconds until a worker must have begun. This is at least twice the wait that admission allows,
because more urgent work may be served first. A final also waits for a worker that hung and is
restarted; a batch for a busy hour."""

DROPPABLE = (DecodePriority.PARTIAL, DecodePriority.SPECULATIVE)
"""Priorities that may be dropped. Their callers can continue without the result, and a newer
request of the same utterance takes their place."""
