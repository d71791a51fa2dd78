"""Backend that computes a token model in torch, one id of all running sequences per step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from core.errors import OverloadedError
from engines.runtime.sampling import SamplingParameters
from engines.tts.token_model.backend import AllowedIds, IdOrder, NewId, TokenRequest
from engines.tts.token_model.network import SlotCache, TokenNetwork

RETRY_AFTER_S = 1
"""Seconds after which a refused caller may try again. A speech lasts seconds, so a slot may be free
then."""


@dataclass(slots=True)
class _RunningIds:
    """A running sequence."""

    request: TokenRequest
    slot: int
    sampling: SamplingParameters
    random: torch.Generator
    written: int = 0
    "Number of ids that were written."
    newest: int | None = None
    "The id that the next step reads; None: the prompt was not read yet."


class TorchBackend:
    """A `TokenBackend`. Several of them may share one network, each with slots of its own."""

    def __init__(self, network: TokenNetwork, order: IdOrder, slots: int, *, name: str) -> None:
        """`name`: name of the engine in errors."""
        self.slots, self.context = slots, len(network.positions)
        self._network, self._order, self._name = network, order, name
        self._cache = SlotCache(network, slots)
        self._free = list(range(slots))
        self._sequences: dict[int, _RunningIds] = {}
        self._next_number = 0

    def start(self, request: TokenRequest) -> int:
        """Adds a sequence (see `TokenBackend.start`)."""
        if not self._free:
            raise OverloadedError(
                f"all {self.slots} slots of {self._name} are taken", retry_after_s=RETRY_AFTER_S
            )
        if not 1 <= request.max_ids <= self.context - len(request.prompt) + 1:
            raise ValueError(
                f"a prompt of {len(request.prompt)} ids and {request.max_ids} new ids;"
                f" the context has {self.context}"
            )
        number, self._next_number = self._next_number, self._next_number + 1
        random = torch.Generator(self._network.tokens.device).manual_seed(request.seed)
        sampling = SamplingParameters(request.temperature, request.top_k)
        self._sequences[number] = _RunningIds(request, self._free.pop(0), sampling, random)
        return number

    def step(self) -> Mapping[int, NewId]:
        """Writes one id of every running sequence, and reads the prompt of at most one new
        sequence, so that the others wait for one prompt only."""
        with torch.inference_mode():
            outputs = self._continued()
            unread = next((n for n, one in self._sequences.items() if one.newest is None), None)
            if unread is not None:
                outputs[unread] = self._read_prompt(self._sequences[unread])
            ids = self._choose(outputs)
        return {number: self._end_step(number, *chosen) for number, chosen in ids.items()}

    def cancel(self, number: int) -> None:
        """Ends a sequence (see `TokenBackend.cancel`)."""
        sequence = self._sequences.pop(number, None)
        if sequence is not None:
            self._free.append(sequence.slot)

    def _continued(self) -> dict[int, torch.Tensor]:
        """Returns the network's output for the newest id of each sequence that has one."""
        running = {n: one for n, one in self._sequences.items() if one.newest is not None}
        if not running:
            return {}
        slots = [one.slot for one in running.values()]
        positions = [len(one.request.prompt) + one.written - 1 for one in running.values()]
        vectors = self._vectors([one.newest or 0 for one in running.values()], positions)
        output = self._network.layers.run(vectors, self._cache.read_next(slots, positions))
        return dict(zip(running, output, strict=True))

    def _read_prompt(self, sequence: _RunningIds) -> torch.Tensor:
        prompt, added = sequence.request.prompt, sequence.request.added
        vectors = self._vectors(prompt, range(len(prompt)))
        if added:
            vectors[: len(added)] += self._network.tokens[self._tensor(added)]
        return self._network.layers.run(vectors, self._cache.read_prompt(sequence.slot))[-1]

    def _choose(self, outputs: Mapping[int, torch.Tensor]) -> dict[int, tuple[int, bool]]:
        """Returns the next id of each sequence, and whether it is the end marker. Only the scores
        of ids that it may write are computed, for all sequences with the same ids together."""
        by_allowed: dict[AllowedIds, list[int]] = {}
        for number in outputs:
            allowed = self._order(self._sequences[number].written)
            by_allowed.setdefault(allowed, []).append(number)
        chosen: dict[int, tuple[int, bool]] = {}
        head = self._network.head
        for allowed, numbers in by_allowed.items():
            first, count, stop = allowed.first, allowed.count, allowed.stop
            output = torch.stack([outputs[number] for number in numbers])
            scores = output @ head[first : first + count].T
            if stop is not None:
                scores = torch.cat([scores, output @ head[stop : stop + 1].T], 1)
            for number, row in zip(numbers, scores, strict=True):
                index = self._pick(self._sequences[number], row, allowed)
                is_stop = stop is not None and index == count
                chosen[number] = (stop or 0, True) if is_stop else (first + index, False)
        return chosen

    def _pick(self, sequence: _RunningIds, scores: torch.Tensor, allowed: AllowedIds) -> int:
        """Returns the index of the next id in its row of scores."""
        least = sequence.request.min_stop_chance
        if allowed.stop is not None and least < 1 and scores.float().softmax(-1)[-1] > least:
            return allowed.count
        return sequence.sampling.pick(scores, generator=sequence.random)

    def _end_step(self, number: int, chosen: int, is_stop: bool) -> NewId:
        sequence = self._sequences[number]
        sequence.newest, sequence.written = chosen, sequence.written + 1
        is_last = is_stop or sequence.written == sequence.request.max_ids
        if is_last:
            self.cancel(number)
        return NewId(chosen, is_last)

    def _vectors(self, ids: Any, positions: Any) -> torch.Tensor:
        network = self._network
        return network.tokens[self._tensor(ids)] + network.positions[self._tensor(positions)]

    def _tensor(self, numbers: Any) -> torch.Tensor:
        return torch.tensor(list(numbers), device=self._network.tokens.device)
