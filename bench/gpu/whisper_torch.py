"""`whisper_torch` without its tokenizer: takes windows, returns a given number of tokens."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import torch
from tokenizers import Tokenizer as Table

from bench.gpu.random_models import START
from bench.measurements.material.whisper_tokens import whisper_tokens
from engines.asr.whisper.decode import DecodePolicy, DecodeRules
from engines.asr.whisper.temperature_fallback import WindowTask
from engines.asr.whisper.tokenizer import Tokenizer
from engines.asr.whisper.word_timestamps import CrossAttentionAligner
from engines.asr.whisper_torch.batching.engine_thread import DeviceThread
from engines.asr.whisper_torch.batching.kv_cache import NewRow
from engines.asr.whisper_torch.batching.request import DecodeProgramFactory
from engines.asr.whisper_torch.batching.slots import GeneratedTokens
from engines.asr.whisper_torch.batching.word_alignment import TokenAligner
from engines.asr.whisper_torch.engine import WhisperTorch
from engines.asr.whisper_torch.network.cuda_graphs import EncodeShape
from engines.asr.whisper_torch.network.device import DeviceModel, open_device
from engines.base import AsrInfo


def open_model(folder: Path, kind: str, device: str, rows: int, budget_s: float) -> DeviceModel:
    """Opens a model; on a GPU captures graphs within `budget_s` seconds."""
    model = open_device(folder, kind, device, rows)
    if device != "cpu" and budget_s:
        captured, total = model.capture((500, 1000, 2000, 3000), budget_s, time.monotonic)
        print(f"{folder.name}: {captured} of {total} graphs captured", flush=True)
    return model


def generate_tokens(
    model: DeviceModel,
    windows: Sequence[torch.Tensor],
    tokens: int,
    beams: int = 1,
    *,
    given: Sequence[int] = (),
) -> list[GeneratedTokens]:
    """Decodes each window (mels, frames) to as many tokens as asked for, whatever they are.

    given: tokens before them. Windows of one length are encoded together; a row starts as soon as
        there is room.
    """
    special = model.special
    prompt = (START, special.no_timestamps, *given)
    new = NewRow(prompt, len(prompt) + tokens, beam_size=beams, suppressed=(special.end,))
    encoded = _encoded(model, windows)
    waiting, found = list(range(len(windows))), dict[int, GeneratedTokens]()
    occupied = {}
    while len(found) < len(windows):
        while waiting and (first := model.rows.find_free(beams)) is not None:
            index = waiting.pop(0)
            occupied[index] = model.rows.join(first, new, encoded[index])
        model.rows.step()
        ended = model.rows.ended()
        written = model.rows.answers(ended)
        for index in [index for index, slot_range in occupied.items() if slot_range in ended]:
            found[index] = written[ended.index(occupied[index])]
            model.rows.leave(occupied.pop(index))
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


# The whole engine around a model of random weights: from samples to results with text.

TOKENS_PER_S = 4
"Tokens per second of speech: about three words."

_ACCEPT_ALL = DecodeRules(
    padding="bucket",
    log_prob_threshold=-inf,
    no_speech_threshold=inf,
    min_confidence=0.0,
    max_compression_ratio=inf,
)


def open_engine(model: DeviceModel) -> WhisperTorch:
    """Returns a started engine. Its words are made up, its special tokens are real, and it takes
    all audio for speech."""
    tokens = whisper_tokens(Path("/nowhere"), model.shape.mels == 128)
    table = Table.from_str(json.dumps(tokens.tokenizer))
    tokenizer = Tokenizer(table, is_multilingual=True)
    info = AsrInfo("whisper_torch", "random", ("en",), model.capacity, False, supports=("task",))
    aligner = CrossAttentionAligner(TokenAligner(model), table, True)
    programs = _FixedLengthPrograms(
        model, DecodePolicy(tokenizer, aligner, info, _ACCEPT_ALL), tokenizer
    )
    loop = DeviceThread(model.rows, model.launcher, model.weights.device)
    loop.start()
    return WhisperTorch(info, programs, loop)


class _FixedLengthPrograms(DecodeProgramFactory):
    """Random weights never end a text, so each answer gets as many tokens as speech of its length
    has."""

    def _rows(
        self, window_task: WindowTask, temperature: float, seed: int, most: int
    ) -> Sequence[NewRow]:
        most = min(most, max(4, round(TOKENS_PER_S * window_task.duration_s)))
        end = self._device.special.end
        return [
            replace(row, suppressed=(*(row.suppressed or ()), end))
            for row in super()._rows(window_task, temperature, seed, most)
        ]
