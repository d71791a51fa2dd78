"""Values near the limit of float16 stay finite."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import WhisperForConditionalGeneration

from engines.asr.whisper_torch.network.linear import WeightStorage, quantize_linear
from tests.engines.asr.whisper_torch import checkpoints
from tests.engines.asr.whisper_torch.driver import encoded_windows, opened

pytestmark = pytest.mark.live

WIDTH = 1280
"The width of turbo and large."


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kept", ["int8", "fp8"])
def test_a_matrix_of_8_bits_gives_the_same_as_the_unquantized_one(
    kept: WeightStorage, dtype: torch.dtype
) -> None:
    """The sum of its integers exceeds float16 long before the outputs do."""
    weight = torch.stack([torch.full((WIDTH,), 120 / WIDTH), torch.full((WIDTH,), 1e-3)]).to(dtype)
    x, bias = torch.ones(1, WIDTH, dtype=dtype), torch.tensor([0.0, 7.0], dtype=dtype)
    found = quantize_linear(weight, bias, kept)(x)
    assert found.dtype == dtype
    assert found[0].tolist() == pytest.approx([120, 8.28], rel=0.01)


def test_the_encoder_stays_within_float16_as_transformers_does(tmp_path: Path) -> None:
    """Otherwise the second layer would overflow, and the norm would give infinity minus
    infinity."""
    folder = checkpoints.random(tmp_path / "wide", layers=2, width=192)
    file = folder / "model.safetensors"
    weights: dict[str, Any] = load_file(file)
    for layer in range(2):
        weights[f"model.encoder.layers.{layer}.fc2.bias"][5] = 40_000
    save_file(weights, file, {"format": "pt"})
    device = opened(folder, compute_type="float16")
    window = torch.randn(80, 3000, generator=torch.Generator().manual_seed(1))
    (ours,) = encoded_windows(device, [window])
    model = WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float16).eval()
    with torch.inference_mode():
        (theirs,) = model.model.encoder(window[None].half()).last_hidden_state
    assert theirs.isfinite().all()
    assert (ours - theirs).abs().max() <= 0.01 * theirs.abs().max()
