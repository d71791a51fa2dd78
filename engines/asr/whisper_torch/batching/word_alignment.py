"""Aligns text with audio: the decoder reads its answer again, and its attention gives the times.

`engines.asr.whisper.word_timestamps` turns the path of the text through the audio into words and
times. This module computes the path; in the other engine CTranslate2 does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from engines.asr.whisper_torch.network.decoder import cross_keys_values, forced_decode, scores
from engines.asr.whisper_torch.network.device import DeviceModel


@dataclass(frozen=True, slots=True)
class TokenPath:
    """Counterpart of CTranslate2's `WhisperAlignmentResult`."""

    alignments: list[tuple[int, int]]
    "(index of the token, encoder position) along the path."
    text_token_probs: list[float]


class TokenAligner:
    """Counterpart of CTranslate2's `Whisper.align`."""

    def __init__(self, device: DeviceModel) -> None:
        self._device = device

    def align(
        self,
        encoded: torch.Tensor,
        start: Sequence[int],
        texts: Sequence[Sequence[int]],
        frames: int,
        *,
        median_filter_width: int = 7,
    ) -> list[TokenPath]:
        """Returns one path per text.

        encoded: encoder output, shape (positions, width). start: first tokens of the transcript.
        frames: number of mel frames that hold audio.
        """
        return [self._path(encoded, start, text, frames, median_filter_width) for text in texts]

    def _path(
        self,
        encoded: torch.Tensor,
        start: Sequence[int],
        text: Sequence[int],
        frames: int,
        median_width: int,
    ) -> TokenPath:
        special, shape = self._device.special, self._device.shape
        decoder = self._device.weights.decoder
        before = [*start, special.no_timestamps]
        input_tokens = torch.tensor([*before, *text, special.end]).to(encoded.device)
        audio = cross_keys_values(decoder, shape, encoded)
        output, _, attention = forced_decode(
            decoder, shape, input_tokens, audio, special.alignment_heads
        )
        text_output = output[len(before) - 1 : -2]
        token_probabilities = scores(decoder, text_output)[:, : special.end].softmax(1)
        probabilities = token_probabilities.gather(1, input_tokens[len(before) : -1, None])[
            :, 0
        ].tolist()
        weights = attention[:, :, : max(1, frames // 2)].float().softmax(-1)
        weights = weights - weights.mean(-2, keepdim=True)
        weights = weights / weights.var(-2, keepdim=True, unbiased=False).sqrt().clamp(min=1e-10)
        cost = -_median_filtered(weights, median_width).mean(0)
        path = dynamic_time_warping(cost[len(before) - 1 : -1].cpu().numpy())
        return TokenPath(path, probabilities)


def dynamic_time_warping(cost: npt.NDArray[np.float32]) -> list[tuple[int, int]]:
    """Returns the cheapest path from the first to the last corner of `cost`.

    cost: shape (tokens, positions). Each step goes to the next token, the next position, or both.
    A cell depends only on the two anti-diagonals before its own, so each of them is computed at
    once.
    """
    tokens, positions = cost.shape
    total = np.full((tokens + 1, positions + 1), np.inf, np.float32)
    total[0, 0] = 0
    previous_step = np.zeros((tokens + 1, positions + 1), np.int8)
    for diagonal in range(2, tokens + positions + 1):
        i = np.arange(max(1, diagonal - positions), min(tokens, diagonal - 1) + 1)
        j = diagonal - i
        both, token, position = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        is_both = (both < token) & (both < position)
        best = np.where(is_both, 0, np.where(token < position, 1, 2))
        previous_step[i, j] = best
        total[i, j] = cost[i - 1, j - 1] + np.choose(best, (both, token, position))
    previous_step[0, :], previous_step[:, 0] = 2, 1
    i_, j_ = tokens, positions
    path = []
    while i_ > 0 or j_ > 0:
        path.append((i_ - 1, j_ - 1))
        step = previous_step[i_, j_]
        i_, j_ = i_ - (step != 2), j_ - (step != 1)
    return path[::-1]


def _median_filtered(weights: torch.Tensor, width: int) -> torch.Tensor:
    """Returns the medians of `width` neighbouring positions; the ends are mirrored."""
    half = width // 2
    if weights.shape[-1] <= half:
        return weights
    padded = torch.nn.functional.pad(weights, (half, half), mode="reflect")
    return padded.unfold(-1, width, 1).sort(-1).values[..., half]
