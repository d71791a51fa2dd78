"""Scheduling policy of speech recognition: priorities, how long each may wait, and what a newer
request replaces."""

from enum import IntEnum

from engines.base import AsrItem
from serving.scheduling.policy import PriorityRule, SchedulingPolicy


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


ASR_SCHEDULING: SchedulingPolicy[AsrItem] = SchedulingPolicy(
    kind="asr",
    work="recognition",
    rules={
        # A speaker gives up after 15 s. The deadline leaves time to restart a worker that hung.
        DecodePriority.FINAL: PriorityRule(wait_limit_s=15.0, deadline_s=90.0),
        # Speculation only saves time.
        DecodePriority.SPECULATIVE: PriorityRule(
            wait_limit_s=2.0,
            deadline_s=4.0,
            is_droppable=True,
            promoted_to=DecodePriority.FINAL,
        ),
        # Refused first under load, because newer ones follow.
        DecodePriority.PARTIAL: PriorityRule(
            wait_limit_s=1.0, deadline_s=2.0, is_droppable=True, is_rationed=True
        ),
        # HTTP clients and proxies wait for a minute. The deadline is longer, because in a busy hour
        # more urgent requests may come first again and again.
        DecodePriority.BATCH: PriorityRule(wait_limit_s=60.0, deadline_s=300.0, is_bulk=True),
    },
    sequence_of=lambda item: item.utterance,
    is_last=lambda item: item.is_final,
)
"""Utterances are the sequences: a newer request of an utterance replaces the older ones that wait,
and one worker keeps the state of the utterance."""
