"""transformers' `generate` with the same weights and as many tokens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def loaded(folder: Path, dtype: torch.dtype, device: str) -> Any:
    from transformers import WhisperForConditionalGeneration, logging

    logging.set_verbosity_error()  # it warns at every call that a given count overrides a default
    logging.disable_progress_bar()
    model = WhisperForConditionalGeneration.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa"
    )
    return model.to(device).eval()


def generator(
    model: Any, windows: torch.Tensor, tokens: int, beams: int = 1, *, compiled: bool = False
) -> Callable[[], torch.Tensor]:
    """A call that answers `windows` (windows, mels, 3000). `compiled`: static cache and
    torch.compile, as transformers' documentation recommends."""
    options: dict[str, Any] = {"num_beams": beams, "max_new_tokens": tokens}
    options |= {"min_new_tokens": tokens, "return_timestamps": False}
    if compiled:
        model.generation_config.cache_implementation = "static"
        model.forward = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True)

    def call() -> torch.Tensor:
        return model.generate(windows, **options)

    return call
