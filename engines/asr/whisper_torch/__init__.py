"""Whisper in torch: transformers' checkpoints at the speed of the GPU, requests joining any time.

Text is that of transformers' `generate`; windows, prompts, rejection and results are those of the
`faster_whisper` engine (`engines/asr/whisper/`).
"""

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ConfigError
from engines.asr.whisper_torch.settings import NAME, Settings, describe

if TYPE_CHECKING:
    from engines.asr.whisper_torch.device import Device
    from engines.asr.whisper_torch.engine import WhisperTorch

__all__ = ["REQUIRES", "Settings", "create", "describe"]

REQUIRES = {
    "torch": "'earshot[torch]'",
    "safetensors": "safetensors",
    "faster_whisper": "faster-whisper",
    "tokenizers": "tokenizers",
}
"faster-whisper is here for its tokens and words: nothing is computed in CTranslate2."

logger = logging.getLogger(__name__)


def create(settings: Settings) -> "WhisperTorch":
    """Raises EngineMissing when there are no weights, ConfigError when they cannot be used so."""
    info = describe(settings)
    folder = Path(settings.model)

    import torch
    from faster_whisper.tokenizer import Tokenizer
    from faster_whisper.transcribe import get_suppressed_tokens
    from tokenizers import Tokenizer as Table

    from engines.asr.whisper.alignment import Aligner
    from engines.asr.whisper.listening import Listening
    from engines.asr.whisper.settings import read_notes
    from engines.asr.whisper_torch.aligning import WordTimer
    from engines.asr.whisper_torch.course import Courses
    from engines.asr.whisper_torch.device import open_device
    from engines.asr.whisper_torch.engine import WhisperTorch
    from engines.asr.whisper_torch.loop import Loop

    is_multilingual = "task" in info.supports
    where, kind = _place(settings)
    if where == "cpu" and settings.cpu_threads:
        torch.set_num_threads(settings.cpu_threads)
    if where != "cpu":
        torch.cuda.set_device(where)
    with torch.inference_mode():
        device = open_device(folder, kind, where, settings.max_batch)
        if where != "cpu" and settings.graphs:
            _capture(device, settings, folder)
    table = Table.from_file(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer(table, is_multilingual, "transcribe", "en")
    suppressed = [token for token in get_suppressed_tokens(tokenizer, [-1]) or () if token]
    aligner = Aligner(WordTimer(device, table), is_multilingual)
    notes = read_notes(folder, settings, NAME)
    listening = Listening(tokenizer, aligner, info, notes, settings)
    loop = Loop(device.rows, device.launcher, device.weights.device)
    loop.start()
    return WhisperTorch(info, Courses(device, listening, tokenizer, suppressed), loop)


def _place(settings: Settings) -> tuple[str, str]:
    """Device and compute type. Raises ConfigError."""
    import torch

    has_gpu = torch.cuda.is_available()
    if settings.device == "cuda" and not has_gpu:
        raise ConfigError(f"asr.{NAME}: device cuda, but torch sees no GPU; allowed: auto, cpu")
    if settings.device == "cpu" or not has_gpu:
        kind = settings.compute_type or "float32"
        if kind.endswith("16"):
            kind = "float32"  # theirs was for a GPU
        return "cpu", kind
    return f"cuda:{settings.device_index}", settings.compute_type or "float16"


def _capture(device: "Device", settings: Settings, folder: Path) -> None:
    from engines.asr.whisper.settings import read_notes
    from engines.asr.whisper.windows import usual_frames

    padding = settings.padding or read_notes(folder, settings, NAME).padding
    began_s = time.monotonic()
    count, of = device.capture(usual_frames(padding), settings.warm_up_s, time.monotonic)
    took_s = time.monotonic() - began_s
    logger.info("= asr.%s: %d of %d CUDA graphs in %.1f s", NAME, count, of, took_s)
