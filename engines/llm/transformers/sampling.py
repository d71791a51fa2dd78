"""The next token from a model's scores."""

from dataclasses import dataclass
from typing import Any

GREEDY_BELOW = 0.01
"A temperature below this is as good as none, and would overflow."


@dataclass(frozen=True, slots=True)
class Sampling:
    temperature: float = 0.0
    top_k: int = 0
    "0: any number."
    top_p: float = 1.0

    @classmethod
    def of(cls, config: Any, temperature: float | None) -> "Sampling":
        """As a model's generation config recommends, with another temperature if there is one."""
        recommended = (config.temperature or 1.0) if config.do_sample else 0.0
        chosen = recommended if temperature is None else temperature
        return cls(chosen, config.top_k or 0, config.top_p or 1.0)

    def pick(self, scores: Any) -> int:
        """`scores`: a tensor with one for each token of the vocabulary."""
        import torch

        if self.temperature < GREEDY_BELOW:
            return int(scores.argmax())
        scores = scores.float() / self.temperature
        if 0 < self.top_k < len(scores):
            scores[scores < scores.topk(self.top_k).values[-1]] = -torch.inf
        chances, tokens = scores.softmax(-1).sort(descending=True)
        if self.top_p < 1:
            chances[chances.cumsum(-1) - chances >= self.top_p] = 0  # the first one always stays
        return int(tokens[torch.multinomial(chances, 1)])
