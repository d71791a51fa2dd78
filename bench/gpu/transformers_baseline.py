"""transformers' `generate` with the same weights and number of tokens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def loaded(folder: Path, dtype: torch.dtype, device: str) -> Any:
    """Loads the checkpoint with transformers."""
    from transformers import WhisperForConditionalGeneration, logging

    # otherwise each call warns that a given token count overrides a default
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = WhisperForConditionalGeneration.from_pretrained(
        folder, dtype=dtype, attn_implementation="sdpa"
    )
    return model.to(device).eval()


def generator(
    model: Any, windows: torch.Tensor, tokens: int, beams: int = 1, *, compiled: bool = False
) -> Callable[[], torch.Tensor]:
    """Returns a call that decodes `windows` (windows, mels, 3000).

    compiled: use a static cache and torch.compile, as transformers' documentation recommends.
    """
    options: dict[str, Any] = {"num_beams": beams, "max_new_tokens": tokens}
    forward: list[Any] = []  # compiled at the first call, so that an error belongs to that call
    options |= {"min_new_tokens": tokens, "return_timestamps": False}
    if compiled:
        options["cache_implementation"] = "static"
    plain = model.forward

    def call() -> torch.Tensor:
        if compiled and not forward:
            forward.append(torch.compile(plain, mode="reduce-overhead", fullgraph=True))
        model.forward = forward[0] if forward else plain
        before = torch.backends.cuda.cudnn_sdp_enabled()
        torch.backends.cuda.enable_cudnn_sdp(True)  # torch's default; Earshot switches it off
        try:
            return model.generate(windows, **options)
        finally:
            model.forward = plain
            torch.backends.cuda.enable_cudnn_sdp(before)

    return call
