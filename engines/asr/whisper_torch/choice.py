"""The next token of every row, on the device: the likeliest, a drawn one, or a beam's.

A beam is `width` neighbouring rows. Each of them works out the whole beam's next state and takes
its own part of it: nothing is written across rows, and all of it has one static form.
"""

from dataclasses import dataclass

import torch

from engines.asr.whisper_torch.state import NOWHERE, State

MAX_BEAM = 8
_KEPT = 2 * MAX_BEAM
"Candidates of a beam: half of them may be ends."

_LOW = 0xFFFFFFFF
"Of a 64 bit product, the lower half."


@dataclass(frozen=True, slots=True)
class _Next:
    """Of every row: which token follows, and whose past it continues."""

    token: torch.Tensor
    logprob: torch.Tensor
    "Of the whole answer."
    done: torch.Tensor
    score: torch.Tensor
    parent: torch.Tensor


def choose(
    state: State, scores: torch.Tensor, allowed: torch.Tensor, *, said: int, is_plain: bool
) -> None:
    """Write the next step's state. `scores`: before the rules, `allowed` after them. `said`: no row
    is longer. `is_plain`: none has a beam or a temperature."""
    rows = len(scores)
    now = state.position[:rows].clone()
    is_given = now + 1 < state.prompt[:rows]
    is_over = state.done[:rows] == 1
    total = scores.logsumexp(1)
    _note_silence(state, scores, total, now, is_over)
    following = _single(state, allowed, is_plain=is_plain)
    if not is_plain:
        following = _beam(state, allowed, total, following, ~is_given & ~is_over)
    given = state.tokens[:rows].gather(1, now[:, None] + 1)[:, 0]
    token = torch.where(is_given, given, following.token)
    frozen = is_given | is_over
    if not is_plain:
        own = torch.arange(rows, device=state.device)
        parent = torch.where(frozen, own, following.parent)
        state.tokens[:rows] = state.tokens[:rows][parent]
        state.last_time[:rows] = state.last_time[:rows][parent]
        past = state.said[:, :, :rows, :, :said]
        past.copy_(past.index_select(2, parent))
        state.score[:rows] = torch.where(frozen, state.score[:rows], following.score)
    state.logprob[:rows] = torch.where(frozen, state.logprob[:rows], following.logprob)
    here = state.tokens[:rows].gather(1, now[:, None] + 1)[:, 0]
    state.tokens[:rows].scatter_(1, now[:, None] + 1, torch.where(is_over, here, token)[:, None])
    is_time = ~frozen & (token >= state.special.timestamps)
    state.last_time[:rows] = torch.where(is_time, token, state.last_time[:rows])
    state.position[:rows] = torch.where(is_over, now, now + 1)
    ends = is_over | (~is_given & following.done)
    state.done[:rows] = ends.to(state.done.dtype)


def _note_silence(
    state: State,
    scores: torch.Tensor,
    total: torch.Tensor,
    now: torch.Tensor,
    is_over: torch.Tensor,
) -> None:
    """How likely it is that nothing is said: the model tells where the transcript starts."""
    if state.special.no_speech is None:
        return
    rows = len(scores)
    silence = (scores[:, state.special.no_speech] - total).exp()
    is_start = (now == state.start_at[:rows]) & ~is_over
    state.no_speech[:rows] = torch.where(is_start, silence, state.no_speech[:rows])


def _single(state: State, allowed: torch.Tensor, *, is_plain: bool) -> _Next:
    """The likeliest token, or with a temperature a drawn one."""
    rows = len(allowed)
    drawn = allowed
    if not is_plain:
        warmth = state.temperature[:rows, None]
        warm = allowed / warmth.clamp(min=1e-3) + _gumbel(state, allowed)
        drawn = torch.where(warmth > 0, warm, allowed)
    token = drawn.argmax(1)
    gain = allowed.gather(1, token[:, None])[:, 0] - allowed.logsumexp(1)
    length = state.position[:rows] + 2
    done = (token == state.special.end) | (length >= state.limit[:rows])
    own = torch.arange(rows, device=state.device)
    return _Next(token, state.logprob[:rows] + gain, done, state.score[:rows], own)


def _gumbel(state: State, allowed: torch.Tensor) -> torch.Tensor:
    """Noise with which the largest is a draw (Gumbel). A hash of seed, position and token: nothing
    of it depends on other rows, on the device or on what was drawn before."""
    rows = len(allowed)
    number = torch.arange(allowed.shape[1], device=state.device)
    of_row = _mixed(state.seed[:rows] * 0x9E3779B1 + state.position[:rows] + 1)
    mixed = _mixed(number * 0x85EBCA6B + of_row[:, None])
    share = (mixed.float() + 0.5) / (_LOW + 1.0)
    return -(-share.clamp(1e-9, 1 - 1e-7).log()).log()


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """32 bits of which each depends on all of `x`'s (MurmurHash3's end)."""
    x = x & _LOW
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & _LOW
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & _LOW
    return x ^ (x >> 16)


def _beam(
    state: State, allowed: torch.Tensor, total: torch.Tensor, single: _Next, is_live: torch.Tensor
) -> _Next:
    """As transformers' beam search with length penalty 1 and early_stopping False."""
    rows = len(allowed)
    group, width = state.group[:rows], state.width[:rows]
    rank = torch.arange(rows, device=state.device) - group
    members = (group[:, None] + torch.arange(MAX_BEAM, device=state.device)).clamp(max=rows - 1)
    is_member = torch.arange(MAX_BEAM, device=state.device) < width[:, None]
    # The beam's best candidates: each row's own best ones, then the best of all.
    own, tokens = (allowed - total[:, None]).topk(_KEPT)
    own = own + state.score[:rows, None]
    pool = own[members].masked_fill(~is_member[:, :, None], -torch.inf).flatten(1)
    best, at = pool.topk(_KEPT)
    parent = members.gather(1, at // _KEPT)
    token = tokens[parent, at % _KEPT]
    change = total - allowed.logsumexp(1)
    logprob = (state.logprob[:rows] - state.score[:rows] + change)[parent] + best
    is_kept = torch.arange(_KEPT, device=state.device) < 2 * width[:, None]
    length = state.position[:rows] + 2
    ends = (token == state.special.end) | (length >= state.limit[:rows])[:, None]
    going = (best + ends * NOWHERE).masked_fill(~is_kept, -torch.inf)
    running, order = going.topk(MAX_BEAM)
    mine = order.gather(1, rank[:, None])
    is_beam = width > 1
    ended = _Ended(parent, token, best, logprob, ends & is_kept)
    is_closed = _finish(state, ended, members, is_member, rank, is_beam & is_live)
    spoken = (length - state.prompt[:rows]).clamp(min=1)
    is_better = (running[:, 0] / spoken)[:, None] > is_closed
    is_open = (state.open[:rows] == 1) & (is_better & is_member).any(1)
    state.open[:rows] = torch.where(is_beam & is_live, is_open.long(), state.open[:rows])
    over = ~is_open | (ends | ~is_kept).all(1)

    def taken(of: torch.Tensor) -> torch.Tensor:
        return of.gather(1, mine)[:, 0]

    return _Next(
        token=torch.where(is_beam, taken(token), single.token),
        logprob=torch.where(is_beam, taken(logprob), single.logprob),
        done=torch.where(is_beam, over, single.done),
        score=torch.where(is_beam, taken(going), single.score),
        parent=torch.where(is_beam, taken(parent), single.parent),
    )


@dataclass(frozen=True, slots=True)
class _Ended:
    """A beam's candidates, (rows, candidates), the best first."""

    parent: torch.Tensor
    token: torch.Tensor
    score: torch.Tensor
    logprob: torch.Tensor
    is_end: torch.Tensor


def _finish(
    state: State,
    ended: _Ended,
    members: torch.Tensor,
    is_member: torch.Tensor,
    rank: torch.Tensor,
    is_live: torch.Tensor,
) -> torch.Tensor:
    """Keep the beam's best finished answers, one in each of its rows. Returns, for each of them,
    the score that a running beam must beat (rows, MAX_BEAM)."""
    rows = len(members)
    width = state.width[:rows, None]
    counts = ended.is_end & (torch.arange(_KEPT, device=state.device) < width)
    length = state.position[:rows] + 2
    spoken = (length - state.prompt[:rows]).clamp(min=1)[:, None]
    blocked = ~counts | (state.open[:rows, None] == 0)
    fresh = ended.score / spoken + blocked * NOWHERE
    old = state.best_score[:rows][members].masked_fill(~is_member, -torch.inf)
    merged = torch.cat([old, fresh], 1)
    top, at = merged.topk(MAX_BEAM)
    is_said = torch.cat([state.is_said[:rows][members] == 1, counts], 1).gather(1, at)
    mine = at.gather(1, rank[:, None])
    is_old = mine[:, 0] < MAX_BEAM
    kept = members.gather(1, mine.clamp(max=MAX_BEAM - 1))[:, 0]
    new = (mine - MAX_BEAM).clamp(min=0)
    parent, token = ended.parent.gather(1, new)[:, 0], ended.token.gather(1, new)
    written = state.tokens[:rows][parent].scatter(1, length[:, None] - 1, token)

    def put(buffer: torch.Tensor, fresh: torch.Tensor) -> None:
        chosen = torch.where(_like(is_old, fresh), buffer[:rows][kept], fresh)
        buffer[:rows] = torch.where(_like(is_live, fresh), chosen, buffer[:rows])

    put(state.best, written)
    put(state.best_length, length)
    put(state.best_logprob, ended.logprob.gather(1, new)[:, 0])
    score = torch.where(is_live, top.gather(1, rank[:, None])[:, 0], state.best_score[:rows])
    state.best_score[:rows] = score
    said = is_said.gather(1, rank[:, None])[:, 0].long()
    state.is_said[:rows] = torch.where(is_live, said, state.is_said[:rows])
    worst = top.masked_fill(~is_member, torch.inf).amin(1, keepdim=True)
    return torch.where(is_said, worst, NOWHERE)


def _like(flag: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """(rows) as wide as `other`."""
    return flag[:, None] if other.dim() == 2 else flag
