"""Loads weights onto the GPU, or onto the CPU with the reason in the log."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from core.errors import ConfigError, EngineMissing
from engines.asr.whisper.model_info import NAME, Settings
from engines.runtime.cuda import install_hint, preload

logger = logging.getLogger(__name__)

_WARM_UP_FRAMES = 200


def load_whisper(folder: Path, settings: Settings) -> Any:
    """Returns faster-whisper's `WhisperModel`, loaded from `folder` alone.

    Raises ConfigError if the weights do not fit the settings, EngineMissing if `device` is cuda and
    CUDA's libraries are missing.
    """
    from ctranslate2 import get_cuda_device_count

    has_gpu = settings.device != "cpu" and get_cuda_device_count() > 0
    if settings.device == "cuda" and not has_gpu:
        raise ConfigError(f"asr.{NAME}: device cuda, but CUDA sees no GPU; allowed: auto, cpu")
    if not has_gpu:
        return _load(folder, settings, "cpu")
    missing = preload()
    problem = install_hint(missing) if missing else ""
    if not problem:
        whisper = _load(folder, settings, "cuda")
        problem = _gpu_error(whisper)
        if not problem:
            return whisper
    if settings.device == "cuda":
        raise EngineMissing("asr", NAME, problem)
    logger.warning("= asr.%s: uses the CPU, because the GPU cannot be used: %s", NAME, problem)
    return _load(
        folder, replace(settings, compute_type=None), "cpu"
    )  # the configured type may be for GPUs only


def _load(folder: Path, settings: Settings, device: str) -> Any:
    from faster_whisper import WhisperModel

    try:
        return WhisperModel(
            str(folder),
            device=device,
            device_index=settings.device_index if device == "cuda" else 0,
            compute_type=settings.compute_type or ("float16" if device == "cuda" else "int8"),
            cpu_threads=settings.cpu_threads,
            local_files_only=True,
        )
    except (RuntimeError, ValueError) as exc:
        raise ConfigError(f"asr.{NAME}: cannot load {folder}: {exc}") from exc


def _gpu_error(whisper: Any) -> str:
    """Encodes some silence on the GPU and returns the error; empty if it worked.

    CTranslate2 opens CUDA's libraries at the first call, not when it loads the weights.
    """
    from ctranslate2 import StorageView

    silence = np.zeros((1, whisper.model.n_mels, _WARM_UP_FRAMES), np.float32)
    try:
        np.array(whisper.model.encode(StorageView.from_array(silence), to_cpu=True))
    except RuntimeError as exc:
        return str(exc)
    return ""
