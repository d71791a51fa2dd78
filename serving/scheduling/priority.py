"""What is recognised first, and how long each kind of work may wait."""

from collections.abc import Mapping
from enum import IntEnum


class DecodePriority(IntEnum):
    """What is served first."""

    FINAL = 0
    SPECULATIVE = 1
    PARTIAL = 2
    BATCH = 3


WAIT_LIMIT_S: Mapping[DecodePriority, float] = {
    DecodePriority.PARTIAL: 1.0,
    DecodePriority.SPECULATIVE: 2.0,
    DecodePriority.FINAL: 15.0,
    DecodePriority.BATCH: 60.0,
}
"""Expected wait above which a newcomer is refused. Under load partials go first, for newer ones
follow; then speculation, which only saves time; then finals, when the speaker has given up. Behind
BATCH stands an HTTP client: proxies and libraries wait a minute."""

BEGIN_SHARE = 0.5
"Of the limit, for work of many requests: what has begun should not be refused half-way."

DEADLINE_S: Mapping[DecodePriority, float] = {
    DecodePriority.PARTIAL: 2.0,
    DecodePriority.SPECULATIVE: 4.0,
    DecodePriority.FINAL: 90.0,
    DecodePriority.BATCH: 300.0,
}
"""Until when a worker must have begun: twice what was expected at the door, as more urgent work may
push in. A final also waits for a worker that hung and is restarted; a batch for a busy hour."""

DROPPABLE = (DecodePriority.PARTIAL, DecodePriority.SPECULATIVE)
"Their callers go on without them; a newer request of the same utterance takes their place."
