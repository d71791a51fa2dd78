"""What a row may say next: Whisper's rules of suppression and timestamps, for all rows at once."""

import torch

from engines.asr.whisper_torch.state import State

_NEVER = -torch.inf


def allowed(state: State, scores: torch.Tensor) -> torch.Tensor:
    """`scores` (rows, vocabulary) with -inf at what a row must not say. As in transformers:
    begin-suppressed, suppressed, then timestamps."""
    rows = len(scores)
    following = state.position[:rows] + 1
    said = following - state.prompt[:rows]
    is_first = said == 0
    banned = state.banned[:rows] | (is_first[:, None] & state.banned_first)
    scores = scores.masked_fill(banned, _NEVER)
    timed = _timed(state, scores, said, is_first)
    return torch.where(state.is_timed[:rows, None] == 1, timed, scores)


def _timed(
    state: State, scores: torch.Tensor, said: torch.Tensor, is_first: torch.Tensor
) -> torch.Tensor:
    rows, special = len(scores), state.special
    position = state.position[:rows, None]
    number = torch.arange(scores.shape[1], device=state.device)
    is_time = number >= special.timestamps
    last = state.tokens[:rows].gather(1, position)[:, 0]
    before = state.tokens[:rows].gather(1, (position - 1).clamp(min=0))[:, 0]
    last_is_time = (said >= 1) & (last >= special.timestamps)
    before_is_time = (said < 2) | (before >= special.timestamps)
    # Timestamps come in pairs, but before the end; none goes back, and a pair is no step at all.
    must_be_text = (last_is_time & before_is_time)[:, None]
    must_be_time = (last_is_time & ~before_is_time)[:, None]
    opens = (state.last_time[:rows, None] > 0) & ~must_be_time
    earliest = torch.where(opens, state.last_time[:rows, None] + 1, state.last_time[:rows, None])
    banned = number == special.no_timestamps
    banned = banned | (must_be_text & is_time) | (must_be_time & (number < special.end))
    banned = banned | (is_time & (number < earliest))
    late = torch.zeros_like(is_time)
    if special.first_timestamps is not None:
        late = number > special.timestamps + special.first_timestamps
    banned = banned | (is_first[:, None] & (~is_time | late))
    scores = scores.masked_fill(banned, _NEVER)
    # Some timestamp is likelier than every word: then it is one.
    times = scores[:, special.timestamps :].logsumexp(1)
    likeliest = scores[:, : special.timestamps].amax(1)
    is_next = (times > likeliest)[:, None]
    return scores.masked_fill(is_next & ~is_time, _NEVER)
