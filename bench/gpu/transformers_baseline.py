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
    forward: list[Any] = []  # compiled at the first call: what fails then is that call's alone
    options |= {"min_new_tokens": tokens, "return_timestamps": False}
    if compiled:
        options["cache_implementation"] = "static"
    plain = model.forward

    def call() -> torch.Tensor:
        if compiled and not forward:
            forward.append(torch.compile(plain, mode="reduce-overhead", fullgraph=True))
        model.forward = forward[0] if forward else plain
        before = torch.backends.cuda.cudnn_sdp_enabled()
        torch.backends.cuda.enable_cudnn_sdp(True)  # as torch comes; ours goes without
        try:
            return model.generate(windows, **options)
        finally:
            model.forward = plain
            torch.backends.cuda.enable_cudnn_sdp(before)

    return call
