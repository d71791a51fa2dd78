"""`whisper_torch` below its tokenizer: windows in, so many tokens out."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from bench.gpu.random_models import START
from engines.asr.whisper_torch.batching.kv_cache import NewRow
from engines.asr.whisper_torch.batching.slots import GeneratedTokens
from engines.asr.whisper_torch.network.cuda_graphs import EncodeShape
from engines.asr.whisper_torch.network.device import DeviceModel, open_device


def opened(folder: Path, kind: str, device: str, rows: int, budget_s: float) -> DeviceModel:
    """With graphs on a GPU."""
    model = open_device(folder, kind, device, rows)
    if device != "cpu" and budget_s:
        count, of = model.capture((500, 1000, 2000, 3000), budget_s, time.monotonic)
        print(f"{folder.name}: {count} of {of} graphs captured", flush=True)
    return model


def answers(
    model: DeviceModel,
    windows: Sequence[torch.Tensor],
    tokens: int,
    beams: int = 1,
    *,
    given: Sequence[int] = (),
) -> list[GeneratedTokens]:
    """One for each window (mels, frames): as many tokens as asked for, whatever they are, behind
    those `given`. Windows of one length are encoded together, rows join as soon as they are."""
    special = model.special
    prompt = (START, special.no_timestamps, *given)
    new = NewRow(prompt, len(prompt) + tokens, beam_size=beams, suppressed=(special.end,))
    encoded = _encoded(model, windows)
    waiting, found = list(range(len(windows))), dict[int, GeneratedTokens]()
    seated = {}
    while len(found) < len(windows):
        while waiting and (first := model.rows.room(beams)) is not None:
            index = waiting.pop(0)
            seated[index] = model.rows.join(first, new, encoded[index])
        model.rows.step()
        ended = model.rows.ended()
        written = model.rows.answers(ended)
        for index in [index for index, seat in seated.items() if seat in ended]:
            found[index] = written[ended.index(seated[index])]
            model.rows.leave(seated.pop(index))
    return [found[index] for index in range(len(windows))]


def _encoded(model: DeviceModel, windows: Sequence[torch.Tensor]) -> dict[int, torch.Tensor]:
    by_length: dict[int, list[int]] = {}
    for index, window in enumerate(windows):
        by_length.setdefault(window.shape[1], []).append(index)
    found: dict[int, torch.Tensor] = {}
    for alike in by_length.values():
        while alike:
            size = next(size for size in (8, 4, 2, 1) if size <= len(alike))
            batch, alike[:size] = alike[:size], []
            shape = EncodeShape(size, windows[batch[0]].shape[1])
            mel = torch.stack([windows[index] for index in batch])
            assert mel.shape[::2] == (shape.windows, shape.frames)
            found |= dict(zip(batch, model.launcher.encode(mel), strict=True))
    return found
