"""Whisper in torch: transformers' checkpoints at the speed of the GPU, requests joining any time.

Text is that of transformers' `generate`; windows, prompts, rejection and results are those of the
`faster_whisper` engine (`engines/asr/whisper/`). The model below (`device.py` and what it imports)
needs torch, numpy and safetensors alone: `bench.gpu` runs it where the server is not installed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engines.asr.whisper_torch.engine import WhisperTorch
    from engines.asr.whisper_torch.settings import Settings, describe

__all__ = ["EXTRA", "REQUIRES", "Settings", "create", "describe"]

EXTRA = "torch"
REQUIRES = {"torch": "torch", "safetensors": "safetensors", "tokenizers": "tokenizers"}


def create(settings: "Settings") -> "WhisperTorch":
    """Raises EngineMissing when there are no weights, ConfigError when they cannot be used so."""
    from engines.asr.whisper_torch.loader import open_engine

    return open_engine(settings)


def __getattr__(name: str) -> Any:
    """What the server asks for, and msgspec with it."""
    if name not in ("Settings", "describe"):
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from engines.asr.whisper_torch import settings

    return getattr(settings, name)
