"""Engine for Whisper in torch: runs transformers' checkpoints; requests join a batch at any time.

The text is the same as that of transformers' `generate`. Windows, prompts, rejection and results
are those of the engine `faster_whisper` (`engines/asr/whisper/`). The model (`network/device.py`
and its imports) needs only torch, numpy and safetensors, so that `bench.gpu` can run it without
the server.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engines.asr.whisper_torch.engine import WhisperTorch
    from engines.asr.whisper_torch.settings import Settings, describe

__all__ = ["EXTRA", "REQUIRES", "Settings", "create", "describe"]

EXTRA = "torch"
REQUIRES = {"torch": "torch", "safetensors": "safetensors", "tokenizers": "tokenizers"}


def create(settings: "Settings") -> "WhisperTorch":
    """Returns the engine with its weights loaded.

    Raises EngineMissing without weights, ConfigError if they do not fit the settings.
    """
    from engines.asr.whisper_torch.loader import open_engine

    return open_engine(settings)


def __getattr__(name: str) -> object:
    """Imports `Settings` and `describe` on first use, because they need msgspec."""
    if name not in ("Settings", "describe"):
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from engines.asr.whisper_torch import settings

    return getattr(settings, name)
