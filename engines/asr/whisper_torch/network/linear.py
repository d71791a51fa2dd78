"""A matrix of the model, as it is kept: whole numbers of 8 bits, fp8, or as it is computed."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn.functional import linear as multiply

WeightStorage = Literal["plain", "int8", "fp8"]

_INT8_MOST = 127.0
_FP8_MOST = 448.0
"The largest finite number of e4m3."


@dataclass(frozen=True, slots=True)
class Linear:
    """`x @ weight.T + bias`. With `scale` (one per output, float32: small ones have few
    digits in float16) the weight is kept in 8 bits."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    scale: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.scale is None:
            return multiply(x, self.weight, self.bias)
        # Scaled first: sums of 127s leave float16 where the outputs do not.
        weight = self.weight.to(x.dtype) * self.scale[:, None]
        return multiply(x, weight.to(x.dtype), self.bias)

    @property
    def nbytes(self) -> int:
        parts = (self.weight, self.bias, self.scale)
        return sum(part.nbytes for part in parts if part is not None)


def quantize_linear(weight: torch.Tensor, bias: torch.Tensor | None, kept: WeightStorage) -> Linear:
    """`weight` (outputs, inputs) in the form asked for: each output has a scale of its own."""
    if kept == "plain":
        return Linear(weight, bias)
    most = _INT8_MOST if kept == "int8" else _FP8_MOST
    scale = weight.float().abs().amax(1).clamp(min=1e-12) / most
    scaled = weight.float() / scale[:, None]
    if kept == "int8":
        return Linear(scaled.round().to(torch.int8), bias, scale)
    return Linear(scaled.to(torch.float8_e4m3fn), bias, scale)
