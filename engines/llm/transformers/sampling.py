"""The next token from a model's scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

GREEDY_BELOW = 0.01
"A temperature below this is as good as none, and would overflow."


class SamplingOptions(Protocol):
    """What a request may say of it; None: nothing."""

    @property
    def temperature(self) -> float | None: ...

    @property
    def top_p(self) -> float | None: ...

    @property
    def repetition_penalty(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    temperature: float = 0.0
    top_k: int = 0
    "0: any number."
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    @classmethod
    def of(cls, config: Any, wished: SamplingOptions) -> "SamplingParameters":
        """As a model's generation config recommends, but for what is wished otherwise."""
        recommended = (config.temperature or 1.0) if config.do_sample else 0.0
        return cls(
            recommended if wished.temperature is None else wished.temperature,
            config.top_k or 0,
            (config.top_p or 1.0) if wished.top_p is None else wished.top_p,
            wished.repetition_penalty or config.repetition_penalty or 1.0,
        )

    def pick(self, scores: Any, seen: Sequence[int]) -> int:
        """`scores`: a tensor with one for each token of the vocabulary. `seen`: the tokens of the
        prompt and of the answer so far, which a penalty makes less likely."""
        import torch

        if self.repetition_penalty != 1:
            scores = self._penalized(scores, seen)
        if self.temperature < GREEDY_BELOW:
            return int(scores.argmax())
        scores = scores.float() / self.temperature
        if 0 < self.top_k < len(scores):
            scores[scores < scores.topk(self.top_k).values[-1]] = -torch.inf
        chances, tokens = scores.softmax(-1).sort(descending=True)
        if self.top_p < 1:
            is_out = chances.cumsum(-1) - chances >= self.top_p
            is_out[0] = False
            chances[is_out] = 0
        return int(tokens[torch.multinomial(chances, 1)])

    def _penalized(self, scores: Any, seen: Sequence[int]) -> Any:
        """As Keskar et al. 2019 (CTRL) have it, and every server since: a score below 0 is
        multiplied, one above divided."""
        import torch

        scores, repeated = (
            scores.float().clone(),
            torch.tensor(sorted(set(seen)), device=scores.device),
        )
        known = scores[repeated]
        penalty = self.repetition_penalty
        scores[repeated] = torch.where(known < 0, known * penalty, known / penalty)
        return scores
