"""Whisper's rules for suppressed tokens and timestamps, applied to all rows at once."""

from dataclasses import dataclass

import torch

from engines.asr.whisper_torch.batching.kv_cache import DecoderState, StepKind

_MINUS_INFINITY = -torch.inf


@dataclass(frozen=True, slots=True)
class RowPositions:
    """Positions of the rows before a step, shape (rows,)."""

    next_position: torch.Tensor
    "Position of the next token."
    is_chosen: torch.Tensor
    "True if the next token is not part of the prompt, and the row is not done."

    @staticmethod
    def of(state: DecoderState, rows: int) -> "RowPositions":
        """Returns the positions of the first `rows` rows."""
        next_position = state.position[:rows] + 1
        is_spoken = next_position >= state.prompt[:rows]
        return RowPositions(next_position, is_spoken & (state.done[:rows] == 0))


def apply_logit_rules(
    state: DecoderState, now: RowPositions, scores: torch.Tensor, kind: StepKind
) -> torch.Tensor:
    """Returns `scores`, shape (rows, vocabulary), with -inf for tokens that are not allowed.

    The rules are those of transformers: tokens suppressed at the beginning, suppressed tokens, then
    timestamps.
    """
    rows = len(scores)
    is_first = now.next_position == state.prompt[:rows]
    disallowed = state.suppressed_mask[:rows] | (is_first[:, None] & state.suppressed_first_mask)
    scores = scores.masked_fill(disallowed, _MINUS_INFINITY)
    if kind < StepKind.TIMED:
        return scores
    timed = _apply_timestamp_rules(state, scores, now.next_position - state.prompt[:rows], is_first)
    return torch.where(state.is_timed[:rows, None] == 1, timed, scores)


def _apply_timestamp_rules(
    state: DecoderState, scores: torch.Tensor, chosen_count: torch.Tensor, is_first: torch.Tensor
) -> torch.Tensor:
    rows, special = len(scores), state.special
    position = state.position[:rows, None]
    number = state.indices[: scores.shape[1]]
    is_time = number >= special.timestamps
    last = state.tokens[:rows].gather(1, position)[:, 0]
    before = state.tokens[:rows].gather(1, (position - 1).clamp(min=0))[:, 0]
    last_is_time = (chosen_count >= 1) & (last >= special.timestamps)
    before_is_time = (chosen_count < 2) | (before >= special.timestamps)
    # Timestamps come in pairs, except before the end token. Times never go back. The second of a
    # pair may equal the first; otherwise a timestamp must be later than the last one.
    must_be_text = (last_is_time & before_is_time)[:, None]
    must_be_time = (last_is_time & ~before_is_time)[:, None]
    has_earlier_time = (state.last_time[:rows, None] > 0) & ~must_be_time
    earliest = torch.where(
        has_earlier_time, state.last_time[:rows, None] + 1, state.last_time[:rows, None]
    )
    disallowed = number == special.no_timestamps
    disallowed = disallowed | (must_be_text & is_time) | (must_be_time & (number < special.end))
    disallowed = disallowed | (is_time & (number < earliest))
    never_first = ~is_time
    if special.first_timestamps is not None:
        never_first = never_first | (number > special.timestamps + special.first_timestamps)
    disallowed = disallowed | (is_first[:, None] & never_first)
    scores = scores.masked_fill(disallowed, _MINUS_INFINITY)
    # If all timestamps together are more probable than the best text token, it is a timestamp.
    time_score = scores[:, special.timestamps :].logsumexp(1)
    best_text_score = scores[:, : special.timestamps].amax(1)
    is_next = (time_score > best_text_score)[:, None]
    return scores.masked_fill(is_next & ~is_time, _MINUS_INFINITY)
