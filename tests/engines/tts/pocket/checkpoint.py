"""A tiny checkpoint of Pocket TTS's form, with random weights: it speaks noise."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from core.audio import Pcm

RATE_HZ = 24_000

STOCK_VOICE = "alba"

CONFIG: dict[str, Any] = {
    "flow_lm": {
        "dtype": "float32",
        "insert_bos_before_voice": True,
        "flow": {"depth": 1, "dim": 32},
        "transformer": {
            "d_model": 64,
            "hidden_scale": 2,
            "max_period": 10_000,
            "num_heads": 4,
            "num_layers": 2,
        },
        "lookup_table": {
            "dim": 64,
            "n_bins": 256,
            "tokenizer": "tokenizers",
            "tokenizer_path": "hf://maker/model/tokenizer.json@0",
        },
    },
    "mimi": {
        "dtype": "float32",
        "sample_rate": RATE_HZ,
        "inner_dim": 8,
        "outer_dim": 32,
        "channels": 1,
        "frame_rate": 12.5,
        "seanet": {
            "dimension": 32,
            "channels": 1,
            "n_filters": 4,
            "n_residual_layers": 1,
            "ratios": [6, 5, 4],
            "kernel_size": 7,
            "residual_kernel_size": 3,
            "last_kernel_size": 3,
            "dilation_base": 2,
            "pad_mode": "constant",
            "compress": 2,
        },
        "transformer": {
            "d_model": 32,
            "num_heads": 2,
            "num_layers": 1,
            "layer_scale": 0.01,
            "context": 250,
            "dim_feedforward": 64,
            "input_dimension": 32,
            "output_dimensions": [32],
        },
        "quantizer": {"dimension": 8, "output_dimension": 32},
    },
}
"The form of the published model, with one layer where it has six, and narrow ones."


def recording(seconds: float = 4.0, *, seed: int = 0) -> Pcm:
    """Returns noise that stands for a recording."""
    noise = np.random.default_rng(seed).normal(0, 3000, int(seconds * RATE_HZ))
    return noise.astype(np.int16)


def write_checkpoint(folder: Path, *, seed: int = 0) -> Path:
    """Writes a model with one voice of its own, and returns its folder; needs pocket_tts."""
    import torch
    from pocket_tts import TTSModel
    from pocket_tts.models.model_state import export_model_state
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={one: n for n, one in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.save(str(folder / "tokenizer.json"))
    file = folder / "config.yaml"
    file.write_text(
        json.dumps(CONFIG).replace("hf://maker/model/tokenizer.json@0", f"{folder}/tokenizer.json")
    )
    torch.manual_seed(seed)
    model = TTSModel.load_model(config=file)
    for parameter in model.parameters():
        if not torch.isfinite(parameter).all() or not parameter.abs().sum():
            torch.nn.init.normal_(parameter, std=0.1)  # what the library leaves for the weights
    save_file(
        {name: one.contiguous() for name, one in model.state_dict().items()},
        folder / "model.safetensors",
    )
    state = model.get_state_for_audio_prompt(torch.from_numpy(recording() / 32_768).float()[None])
    (folder / "embeddings").mkdir()
    export_model_state(state, folder / "embeddings" / f"{STOCK_VOICE}.safetensors")
    file.write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder
