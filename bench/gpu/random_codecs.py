"""Codecs with random weights, in the real shapes or smaller ones, for measurements and tests."""

from pathlib import Path
from typing import Any

import torch

LAYER_SCALE = 0.3
"Share of the attention in the sound. With a smaller one, an error in it would not be heard."


def random_mimi(**shape: Any) -> Any:
    """Returns a Mimi with random weights. `shape`: fields of its configuration; none: the real
    shape."""
    from transformers import MimiConfig, MimiModel

    torch.manual_seed(0)
    model = MimiModel(MimiConfig(**shape)).eval()
    for module in model.modules():
        if hasattr(module, "embed_sum"):  # zeros, so that all codes would sound alike
            module.embed_sum.normal_()
            module.cluster_usage.fill_(1)
    for name, parameter in model.named_parameters():
        if name.endswith("_layer_scale.scale"):
            parameter.data.fill_(LAYER_SCALE)
    return model


def random_encodec(**shape: Any) -> Any:
    """Returns an EnCodec with random weights. `shape`: see `random_mimi`."""
    from transformers import EncodecConfig, EncodecModel

    torch.manual_seed(0)
    model = EncodecModel(EncodecConfig(**shape)).eval()
    for module in model.modules():
        if hasattr(module, "embed_avg"):
            module.embed.normal_()
    return model


def write(model: Any, folder: Path) -> Path:
    """Writes a model as transformers does, and returns its folder."""
    model.save_pretrained(folder)
    return folder
