"""Before anything is timed: the tokens are transformers', and graphs say what kernels say."""

from collections.abc import Sequence
from typing import Any

import torch

from bench.gpu.ours import answers
from bench.gpu.theirs import generator
from engines.asr.whisper_torch.device import Device
from engines.asr.whisper_torch.graphs import Eager
from engines.asr.whisper_torch.rows import Rows


def equal_share(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> float:
    """Of all tokens, those that are equal, place by place. After a first difference the rest is
    another text: it counts as different."""
    total = sum(map(len, theirs))
    same = 0
    for mine, its in zip(ours, theirs, strict=True):
        alike = [a == b for a, b in zip(mine, its, strict=False)]
        same += alike.index(False) if False in alike else len(alike)
    return same / total if total else 1.0


def with_transformers(
    model: Device, reference: Any, windows: Sequence[torch.Tensor], tokens: int, beams: int = 1
) -> float:
    """Share of equal tokens, windows one by one there."""
    mine = [written.tokens for written in answers(model, windows, tokens, beams)]
    theirs = []
    for window in windows:
        output = generator(reference, window[None], tokens, beams)()
        theirs.append(output[0].tolist()[-tokens:])
    return equal_share(mine, theirs)


def with_eager(
    model: Device, windows: Sequence[torch.Tensor], tokens: int, beams: int = 1
) -> float:
    """The same with every captured graph that such windows use, and without."""
    captured = [written.tokens for written in answers(model, windows, tokens, beams)]
    launcher, rows = model.launcher, model.rows
    model.launcher = Eager(model.weights, model.state)
    model.rows = Rows(model.weights, model.state, model.launcher)
    try:
        eager = [written.tokens for written in answers(model, windows, tokens, beams)]
    finally:
        model.launcher, model.rows = launcher, rows
    return equal_share(captured, eager)
