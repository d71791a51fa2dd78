"""Loads a checkpoint and starts the engine."""

import logging
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer as Table

from core.errors import ConfigError
from engines.asr.whisper.decode import DecodePolicy
from engines.asr.whisper.model_info import decode_rules, read_notes
from engines.asr.whisper.tokenizer import Tokenizer
from engines.asr.whisper.windows import all_window_frames
from engines.asr.whisper.word_timestamps import CrossAttentionAligner
from engines.asr.whisper_torch.batching.engine_thread import DeviceThread
from engines.asr.whisper_torch.batching.request import DecodeProgramFactory
from engines.asr.whisper_torch.batching.word_alignment import TokenAligner
from engines.asr.whisper_torch.engine import WhisperTorch
from engines.asr.whisper_torch.network.device import DeviceModel, open_device
from engines.asr.whisper_torch.settings import NAME, Settings, describe

logger = logging.getLogger(__name__)


def open_engine(settings: Settings) -> WhisperTorch:
    """Returns the running engine.

    Raises EngineMissing without weights, ConfigError if they do not fit the settings.
    """
    info = describe(settings)
    folder = Path(settings.model)
    is_multilingual = "task" in info.supports
    rules = decode_rules(settings, read_notes(folder, settings, NAME))
    device_name, compute_type = _device_and_type(settings)
    if device_name == "cpu" and settings.cpu_threads:
        torch.set_num_threads(settings.cpu_threads)
    if device_name != "cpu":
        torch.cuda.set_device(device_name)
    with torch.inference_mode():
        device = open_device(folder, compute_type, device_name, settings.max_batch)
        if device_name != "cpu" and settings.graphs:
            _capture_graphs(device, all_window_frames(rules.padding), settings.warm_up_s)
    table = Table.from_file(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer(table, is_multilingual)
    aligner = CrossAttentionAligner(TokenAligner(device), table, is_multilingual)
    programs = DecodeProgramFactory(
        device, DecodePolicy(tokenizer, aligner, info, rules), tokenizer
    )
    device_thread = DeviceThread(device.rows, device.launcher, device.weights.device)
    device_thread.start()
    return WhisperTorch(info, programs, device_thread)


def _device_and_type(settings: Settings) -> tuple[str, str]:
    """Returns device (`cpu`, `cuda:0`) and compute type. Raises ConfigError without a GPU."""
    has_gpu = torch.cuda.is_available()
    if settings.device == "cuda" and not has_gpu:
        raise ConfigError(f"asr.{NAME}: device cuda, but torch sees no GPU; allowed: auto, cpu")
    if settings.device == "cpu" or not has_gpu:
        compute_type = settings.compute_type or "float32"
        if compute_type.endswith("16"):
            compute_type = "float32"  # the configured type is for a GPU
        return "cpu", compute_type
    return f"cuda:{settings.device_index}", settings.compute_type or "float16"


def _capture_graphs(device: DeviceModel, frames: tuple[int, ...], budget_s: float) -> None:
    began_s = time.monotonic()
    count, wanted = device.capture(frames, budget_s, time.monotonic)
    took_s = time.monotonic() - began_s
    logger.info("= asr.%s: %d of %d CUDA graphs in %.1f s", NAME, count, wanted, took_s)
