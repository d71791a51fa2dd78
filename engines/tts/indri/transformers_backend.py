"""Backend that computes the language model in torch, one id of all running speeches per step."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core.errors import OverloadedError
from engines.runtime.sampling import SamplingParameters
from engines.tts.indri.backend import NewId, SpeechRequest
from engines.tts.indri.frames import codebook_at, may_stop
from engines.tts.indri.gpt2 import Gpt2, SlotCache
from engines.tts.indri.token_layout import CODEBOOK_SIZE, TokenLayout

RETRY_AFTER_S = 1
"A speech lasts seconds, so a slot may be free after a second."


@dataclass(slots=True)
class _Speech:
    """A running speech."""

    request: SpeechRequest
    slot: int
    sampling: SamplingParameters
    random: torch.Generator
    written: int = 0
    "Number of ids that were written."
    newest: int | None = None
    "The id that the next step reads; None: the prompt was not read yet."


class TransformersBackend:
    """A `SpeechBackend`."""

    def __init__(self, network: Gpt2, layout: TokenLayout, slots: int) -> None:
        self.slots, self.context = slots, len(network.positions)
        self._network, self._layout = network, layout
        self._cache = SlotCache(network, slots, self.context)
        self._free = list(range(slots))
        self._speeches: dict[int, _Speech] = {}
        self._next_number = 0

    @classmethod
    def load(
        cls, folder: Path, layout: TokenLayout, *, slots: int, device: str, dtype: str
    ) -> "TransformersBackend":
        """Reads a checkpoint, which blocks for seconds. Raises EngineError for a network of another
        form, and all that transformers raises."""
        from transformers import GPT2LMHeadModel

        model: Any = GPT2LMHeadModel.from_pretrained(
            str(folder.resolve()), local_files_only=True, dtype=dtype, use_safetensors=True
        )
        return cls(Gpt2.of(model.eval().to(device)), layout, slots)

    def start(self, request: SpeechRequest) -> int:
        """Adds a speech (see `SpeechBackend.start`)."""
        if not self._free:
            raise OverloadedError(
                f"all {self.slots} slots of tts.indri are taken", retry_after_s=RETRY_AFTER_S
            )
        if not 1 <= request.max_ids <= self.context - len(request.prompt):
            raise ValueError(
                f"a prompt of {len(request.prompt)} ids and a speech of {request.max_ids} ids;"
                f" the context has {self.context}"
            )
        number, self._next_number = self._next_number, self._next_number + 1
        random = torch.Generator(self._network.tokens.device).manual_seed(request.seed)
        sampling = SamplingParameters(request.temperature, request.top_k)
        self._speeches[number] = _Speech(request, self._free.pop(0), sampling, random)
        return number

    def step(self) -> Mapping[int, NewId]:
        """Writes one id of every running speech, and reads the prompt of at most one new speech, so
        that the others wait for one prompt only."""
        with torch.inference_mode():
            outputs = self._continued()
            unread = next((n for n, one in self._speeches.items() if one.newest is None), None)
            if unread is not None:
                outputs[unread] = self._read_prompt(self._speeches[unread])
            ids = self._choose(outputs)
        return {number: self._end_step(number, chosen) for number, chosen in ids.items()}

    def cancel(self, number: int) -> None:
        """Ends a speech (see `SpeechBackend.cancel`)."""
        speech = self._speeches.pop(number, None)
        if speech is not None:
            self._free.append(speech.slot)

    def _continued(self) -> dict[int, torch.Tensor]:
        """Returns the network's output for the newest id of each speech that has one."""
        running = {n: one for n, one in self._speeches.items() if one.newest is not None}
        if not running:
            return {}
        slots = [one.slot for one in running.values()]
        positions = [len(one.request.prompt) + one.written - 1 for one in running.values()]
        attend = self._cache.read_next(slots, positions)
        newest = self._tensor([one.newest or 0 for one in running.values()])
        output = self._network.run(newest, self._tensor(positions), attend)
        return dict(zip(running, output, strict=True))

    def _read_prompt(self, speech: _Speech) -> torch.Tensor:
        prompt = self._tensor(speech.request.prompt)
        positions = self._tensor(range(len(prompt)))
        return self._network.run(prompt, positions, self._cache.read_prompt(speech.slot))[-1]

    def _choose(self, outputs: Mapping[int, torch.Tensor]) -> dict[int, int]:
        """Returns the next id of each speech. Only the scores of ids that it may write are
        computed, for all speeches at the same codebook together."""
        by_codebook: dict[int, list[int]] = {}
        for number in outputs:
            codebook = codebook_at(self._speeches[number].written)
            by_codebook.setdefault(codebook, []).append(number)
        chosen: dict[int, int] = {}
        head, stop = self._network.head, self._layout.stop
        for codebook, numbers in by_codebook.items():
            first = self._layout.first_code(codebook)
            output = torch.stack([outputs[number] for number in numbers])
            scores = output @ head[first : first + CODEBOOK_SIZE].T
            if may_stop(codebook):
                scores = torch.cat([scores, output @ head[stop : stop + 1].T], 1)
            for number, row in zip(numbers, scores, strict=True):
                speech = self._speeches[number]
                index = speech.sampling.pick(row, generator=speech.random)
                chosen[number] = first + index if index < CODEBOOK_SIZE else stop
        return chosen

    def _end_step(self, number: int, chosen: int) -> NewId:
        speech = self._speeches[number]
        speech.newest, speech.written = chosen, speech.written + 1
        is_last = chosen == self._layout.stop or speech.written == speech.request.max_ids
        if is_last:
            self.cancel(number)
        return NewId(chosen, is_last)

    def _tensor(self, numbers: Any) -> torch.Tensor:
        return torch.tensor(list(numbers), device=self._network.tokens.device)
