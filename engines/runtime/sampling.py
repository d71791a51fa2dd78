"""Picks the next token from a model's scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

GREEDY_BELOW = 0.01
"Temperatures below this count as 0: a division by them would overflow."


class SamplingOptions(Protocol):
    """Sampling fields of a request; None: the model's own value."""

    @property
    def temperature(self) -> float | None: ...

    @property
    def top_p(self) -> float | None: ...

    @property
    def repetition_penalty(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """Parameters for picking the tokens of one answer."""

    temperature: float = 0.0
    "0: always the most likely token."
    top_k: int = 0
    "Number of most likely tokens to choose from; 0: all."
    top_p: float = 1.0
    "Choose from the most likely tokens whose probabilities add up to this value."
    repetition_penalty: float = 1.0
    "Above 1: tokens of the prompt and the answer become less likely."

    @classmethod
    def of(cls, config: Any, requested: SamplingOptions) -> "SamplingParameters":
        """Returns the values of a model's generation config, replaced by those of the request."""
        recommended = (config.temperature or 1.0) if config.do_sample else 0.0
        return cls(
            recommended if requested.temperature is None else requested.temperature,
            config.top_k or 0,
            (config.top_p or 1.0) if requested.top_p is None else requested.top_p,
            requested.repetition_penalty or config.repetition_penalty or 1.0,
        )

    def pick(self, scores: Any, previous_tokens: Sequence[int] = (), generator: Any = None) -> int:
        """Returns the next token.

        scores: logits, tensor of shape (vocabulary,).
        previous_tokens: tokens of the prompt and the answer so far, to which the penalty applies.
        generator: torch.Generator of the random choices; None: that of the process.
        """
        import torch

        if self.repetition_penalty != 1:
            scores = self._penalized(scores, previous_tokens)
        if self.temperature < GREEDY_BELOW:
            return int(scores.argmax())
        scores = scores.float() / self.temperature
        if 0 < self.top_k < len(scores):
            scores[scores < scores.topk(self.top_k).values[-1]] = -torch.inf
        chances, tokens = scores.softmax(-1).sort(descending=True)
        if self.top_p < 1:
            is_excluded = chances.cumsum(-1) - chances >= self.top_p
            is_excluded[0] = False
            chances[is_excluded] = 0
        return int(tokens[torch.multinomial(chances, 1, generator=generator)])

    def _penalized(self, scores: Any, previous_tokens: Sequence[int]) -> Any:
        """Applies the penalty of Keskar et al. 2019 (CTRL), as other model servers do.

        Scores below 0 are multiplied by the penalty, other scores are divided by it.
        """
        import torch

        scores, repeated = (
            scores.float().clone(),
            torch.tensor(sorted(set(previous_tokens)), device=scores.device),
        )
        known = scores[repeated]
        penalty = self.repetition_penalty
        scores[repeated] = torch.where(known < 0, known * penalty, known / penalty)
        return scores
