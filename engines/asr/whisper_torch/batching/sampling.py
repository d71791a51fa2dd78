"""Chooses the next token of every row on the device: the best, a random one, or a beam's.

A beam is `width` neighbouring rows. Each of them computes the next state of the whole beam and
keeps its own part of it. So no row writes to another one, and all tensors have fixed shapes.
"""

from dataclasses import dataclass

import torch

from engines.asr.whisper_torch.batching.kv_cache import NO_SCORE, DecoderState, StepKind
from engines.asr.whisper_torch.batching.logit_rules import RowPositions

MAX_BEAM = 8
_MAX_CANDIDATES = 2 * MAX_BEAM
"Most candidates of a beam: twice its width, as half of them may be end tokens."

_LOW_32_BITS = 0xFFFFFFFF
"Mask for the lower half of a 64 bit product."


@dataclass(frozen=True, slots=True)
class _NextTokens:
    """The next token of every row, shape (rows,)."""

    token: torch.Tensor
    logprob: torch.Tensor
    "Log probability of the token."
    done: torch.Tensor
    "True if the token ends the answer."


@dataclass(frozen=True, slots=True)
class _BeamTokens:
    """The next token of every row, with and without beam, and the row that it continues."""

    token: torch.Tensor
    logprob: torch.Tensor
    "Log probability of the whole answer so far."
    done: torch.Tensor
    score: torch.Tensor
    parent: torch.Tensor
    "Row whose past this row continues."


def choose_tokens(
    state: DecoderState,
    now: RowPositions,
    scores: torch.Tensor,
    allowed: torch.Tensor,
    *,
    tokens: int,
    kind: StepKind,
) -> None:
    """Chooses the next tokens and writes them and the new positions to `state`.

    scores, allowed: scores before and after the rules, shape (rows, vocabulary).
    tokens: upper limit for the tokens of a row.
    In a row that is done, tokens after the last one have no meaning.
    """
    rows = len(scores)
    _store_no_speech(state, scores)
    single = _next_tokens(state, now, allowed, kind)
    token, done = single.token, single.done
    if kind in (StepKind.BEAM, StepKind.MIXED):
        beam = _beam_tokens(state, now, scores, allowed, single)
        token, done = beam.token, beam.done
        _copy_parents(state, beam, now.is_chosen, tokens)
    else:
        state.logprob[:rows].addcmul_(single.logprob, now.is_chosen)
    at = now.next_position[:, None]
    given = state.tokens[:rows].gather(1, at)[:, 0]
    token = torch.where(now.next_position < state.prompt[:rows], given, token)
    state.tokens[:rows].scatter_(1, at, token[:, None])
    if kind is not StepKind.PLAIN:
        is_time = now.is_chosen & (token >= state.special.timestamps)
        _set_where(is_time, state.last_time[:rows], token)
    state.position[:rows].add_(state.done[:rows] == 0)
    state.done[:rows].bitwise_or_(now.is_chosen & done)


def _copy_parents(
    state: DecoderState, following: _BeamTokens, is_chosen: torch.Tensor, tokens: int
) -> None:
    """Copies to each row of a beam the past of the row that it continues."""
    rows = len(is_chosen)
    parent = torch.where(is_chosen, following.parent, state.indices[:rows])
    state.tokens[:rows] = state.tokens[:rows][parent]
    state.last_time[:rows] = state.last_time[:rows][parent]
    past = state.self_cache[:, :, :rows, :, :tokens]
    past.copy_(past.index_select(2, parent))
    for kept, new in ((state.score, following.score), (state.logprob, following.logprob)):
        _set_where(is_chosen, kept[:rows], new)


def _set_where(mask: torch.Tensor, kept: torch.Tensor, new: torch.Tensor) -> None:
    """Sets `kept` to `new` where `mask` is true, in place and with one kernel."""
    torch.where(mask, new, kept, out=kept)


def _store_no_speech(state: DecoderState, scores: torch.Tensor) -> None:
    """Stores the no-speech probability, which the model gives at the start token."""
    if state.special.no_speech is None:
        return
    rows = len(scores)
    silence = scores.softmax(1)[:, state.special.no_speech]
    is_start = state.position[:rows] == state.start_position[:rows]
    _set_where(is_start, state.no_speech[:rows], silence)


def _next_tokens(
    state: DecoderState, now: RowPositions, allowed: torch.Tensor, kind: StepKind
) -> _NextTokens:
    """Returns the best token of each row, or with a temperature a random one."""
    logprobs = allowed.log_softmax(1)
    if kind in (StepKind.SAMPLED, StepKind.MIXED):
        temperature = state.temperature[: len(allowed), None]
        noisy_scores = allowed / temperature.clamp(min=1e-3) + _gumbel(state, allowed)
        token = torch.where(temperature > 0, noisy_scores, allowed).argmax(1)
        logprob = logprobs.gather(1, token[:, None])[:, 0]
    else:
        token, logprob = allowed.argmax(1), logprobs.amax(1)
    is_last = now.next_position >= state.limit[: len(allowed)] - 1
    return _NextTokens(token, logprob, (token == state.special.end) | is_last)


def _gumbel(state: DecoderState, allowed: torch.Tensor) -> torch.Tensor:
    """Returns Gumbel noise: the largest score plus noise is a random draw by probability.

    It is a hash of seed, position and token. So it does not depend on other rows, on the device or
    on earlier draws.
    """
    rows = len(allowed)
    number = state.indices[: allowed.shape[1]]
    of_row = _hash_32(state.seed[:rows] * 0x9E3779B1 + state.position[:rows] + 1)
    hashed = _hash_32(number * 0x85EBCA6B + of_row[:, None])
    fraction = (hashed.float() + 0.5) / (_LOW_32_BITS + 1.0)
    return -(-fraction.clamp(1e-9, 1 - 1e-7).log()).log()


def _hash_32(x: torch.Tensor) -> torch.Tensor:
    """Returns 32 bits, each of which depends on all bits of `x` (the end of MurmurHash3)."""
    x = x & _LOW_32_BITS
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & _LOW_32_BITS
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & _LOW_32_BITS
    return x ^ (x >> 16)


def _beam_tokens(
    state: DecoderState,
    now: RowPositions,
    scores: torch.Tensor,
    allowed: torch.Tensor,
    single: _NextTokens,
) -> _BeamTokens:
    """Computes one step of beam search.

    It equals that of transformers with length penalty 1 and early_stopping False.
    """
    rows, is_live = len(allowed), now.is_chosen
    total = scores.logsumexp(1)
    group, width = state.group[:rows], state.width[:rows]
    number = state.indices[:rows]
    rank = number - group
    members = (group[:, None] + state.indices[:MAX_BEAM]).clamp(max=rows - 1)
    is_member = state.indices[:MAX_BEAM] < width[:, None]
    # The best candidates of the beam: the best ones of each row, then the best of those.
    own, tokens = (allowed - total[:, None]).topk(_MAX_CANDIDATES)
    own = own + state.score[:rows, None]
    pool = own[members].masked_fill(~is_member[:, :, None], -torch.inf).flatten(1)
    best, at = pool.topk(_MAX_CANDIDATES)
    parent = members.gather(1, at // _MAX_CANDIDATES)
    token = tokens[parent, at % _MAX_CANDIDATES]
    change = total - allowed.logsumexp(1)
    logprob = (state.logprob[:rows] - state.score[:rows] + change)[parent] + best
    is_kept = state.indices[:_MAX_CANDIDATES] < 2 * width[:, None]
    length = now.next_position + 1
    ends = (token == state.special.end) | (length >= state.limit[:rows])[:, None]
    running_scores = (best + ends * NO_SCORE).masked_fill(~is_kept, -torch.inf)
    running, order = running_scores.topk(MAX_BEAM)
    own_candidate = order.gather(1, rank[:, None])
    is_beam = width > 1
    ended = _BeamCandidates(parent, token, best, logprob, ends & is_kept)
    is_closed = _keep_finished(state, ended, members, is_member, rank, is_beam & is_live)
    spoken = (length - state.prompt[:rows]).clamp(min=1)
    is_better = (running[:, 0] / spoken)[:, None] > is_closed
    is_open = (state.is_beam_open[:rows] == 1) & (is_better & is_member).any(1)
    _set_where(is_beam & is_live, state.is_beam_open[:rows], is_open.long())
    is_done = ~is_open | (ends | ~is_kept).all(1)

    def taken(values: torch.Tensor) -> torch.Tensor:
        return values.gather(1, own_candidate)[:, 0]

    single_logprob = state.logprob[:rows] + single.logprob
    return _BeamTokens(
        token=torch.where(is_beam, taken(token), single.token),
        logprob=torch.where(is_beam, taken(logprob), single_logprob),
        done=torch.where(is_beam, is_done, single.done),
        score=torch.where(is_beam, taken(running_scores), state.score[:rows]),
        parent=torch.where(is_beam, taken(parent), number),
    )


@dataclass(frozen=True, slots=True)
class _BeamCandidates:
    """Candidates of each row's beam, shape (rows, candidates), the best first."""

    parent: torch.Tensor
    token: torch.Tensor
    score: torch.Tensor
    logprob: torch.Tensor
    is_end: torch.Tensor


def _keep_finished(
    state: DecoderState,
    ended: _BeamCandidates,
    members: torch.Tensor,
    is_member: torch.Tensor,
    rank: torch.Tensor,
    is_live: torch.Tensor,
) -> torch.Tensor:
    """Keeps the best finished answers of each beam, one per row.

    Returns the scores that a running beam must beat, shape (rows, MAX_BEAM).
    """
    rows = len(members)
    width = state.width[:rows, None]
    counts = ended.is_end & (state.indices[:_MAX_CANDIDATES] < width)
    length = state.position[:rows] + 2
    spoken = (length - state.prompt[:rows]).clamp(min=1)[:, None]
    blocked = ~counts | (state.is_beam_open[:rows, None] == 0)
    new_score = ended.score / spoken + blocked * NO_SCORE
    old = state.best_score[:rows][members].masked_fill(~is_member, -torch.inf)
    merged = torch.cat([old, new_score], 1)
    top, at = merged.topk(MAX_BEAM)
    has_best = torch.cat([state.has_best[:rows][members] == 1, counts], 1).gather(1, at)
    own_candidate = at.gather(1, rank[:, None])
    is_old = own_candidate[:, 0] < MAX_BEAM
    kept = members.gather(1, own_candidate.clamp(max=MAX_BEAM - 1))[:, 0]
    new = (own_candidate - MAX_BEAM).clamp(min=0)
    parent, token = ended.parent.gather(1, new)[:, 0], ended.token.gather(1, new)
    written = state.tokens[:rows][parent].scatter(1, length[:, None] - 1, token)

    def store(buffer: torch.Tensor, new_score: torch.Tensor) -> None:
        chosen = torch.where(_broadcastable(is_old, new_score), buffer[:rows][kept], new_score)
        _set_where(_broadcastable(is_live, new_score), buffer[:rows], chosen)

    store(state.best, written)
    store(state.best_length, length)
    store(state.best_logprob, ended.logprob.gather(1, new)[:, 0])
    _set_where(is_live, state.best_score[:rows], top.gather(1, rank[:, None])[:, 0])
    is_own = has_best.gather(1, rank[:, None])[:, 0].long()
    _set_where(is_live, state.has_best[:rows], is_own)
    worst = top.masked_fill(~is_member, torch.inf).amin(1, keepdim=True)
    return torch.where(has_best, worst, NO_SCORE)


def _broadcastable(flag: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns `flag`, shape (rows,), in a shape that broadcasts to `other`."""
    return flag[:, None] if other.dim() == 2 else flag
