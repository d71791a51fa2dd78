"""A matrix of the model, stored as 8-bit integers, as fp8, or in the type of the computation."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn.functional import linear as multiply

WeightStorage = Literal["plain", "int8", "fp8"]
"Form in which weights are kept in memory. plain: in the number type of the computation."

_INT8_MAX = 127.0
_FP8_MAX = 448.0
"Largest finite number of e4m3."


@dataclass(frozen=True, slots=True)
class Linear:
    """Computes `x @ weight.T + bias`.

    weight: shape (outputs, inputs). With `scale` it is stored in 8 bits.
    scale: one per output, in float32, because small scales lose digits in float16.
    """

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    scale: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.scale is None:
            return multiply(x, self.weight, self.bias)
        # The weight is scaled before the product: sums of values up to 127 may overflow float16
        # although the outputs do not.
        weight = self.weight.to(x.dtype) * self.scale[:, None]
        return multiply(x, weight.to(x.dtype), self.bias)

    @property
    def nbytes(self) -> int:
        """Size of the tensors in bytes."""
        parts = (self.weight, self.bias, self.scale)
        return sum(part.nbytes for part in parts if part is not None)


def quantize_linear(
    weight: torch.Tensor, bias: torch.Tensor | None, storage: WeightStorage
) -> Linear:
    """Stores a weight, shape (outputs, inputs), as `storage` says, with one scale per output."""
    if storage == "plain":
        return Linear(weight, bias)
    max_value = _INT8_MAX if storage == "int8" else _FP8_MAX
    scale = weight.float().abs().amax(1).clamp(min=1e-12) / max_value
    scaled = weight.float() / scale[:, None]
    if storage == "int8":
        return Linear(scaled.round().to(torch.int8), bias, scale)
    return Linear(scaled.to(torch.float8_e4m3fn), bias, scale)
