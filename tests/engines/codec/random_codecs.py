"""Codecs with random weights, in the real shapes or tiny ones. Needs torch and transformers."""

from pathlib import Path
from typing import Any

import torch

TINY_MIMI = {
    "hidden_size": 32,
    "num_filters": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "upsample_groups": 32,
    "sliding_window": 20,
    "codebook_size": 64,
    "codebook_dim": 16,
    "vector_quantization_hidden_dimension": 16,
    "num_quantizers": 16,
}
TINY_ENCODEC = {
    "hidden_size": 16,
    "num_filters": 4,
    "num_lstm_layers": 1,
    "codebook_size": 64,
    "target_bandwidths": [0.9, 3.6],
}

LAYER_SCALE = 0.3
"So large that an error in the attention is heard."


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
