"""EnCodec's network, which computes whole clips."""

from pathlib import Path
from typing import Any


class EncodecNetwork:
    """An `engines.codec.torch_layers.segmented_codec.CodecNetwork`."""

    def __init__(self, model: Any) -> None:
        """`model`: transformers' `EncodecModel`, ready to run."""
        from torch.nn.utils import parametrize

        for module in model.modules():
            # Weights are kept as direction and length, which would be multiplied in each call.
            if parametrize.is_parametrized(module, "weight"):
                parametrize.remove_parametrizations(module, "weight")
        self._model = model

    def encode(self, sound: Any, codebooks: int) -> Any:
        """Returns the codes, shape (rows, codebooks, frames)."""
        quantizer = self._model.quantizer
        # The number is asked for as a bit rate, which is rounded down to whole codebooks.
        bits_per_codebook = self._model.bits_per_codebook * quantizer.frame_rate
        bandwidth_kbps = (codebooks + 0.5) * bits_per_codebook / 1000
        return quantizer.encode(self._model.encoder(sound), bandwidth_kbps).transpose(0, 1)

    def decode(self, codes: Any) -> Any:
        """Returns the sound, shape (rows, samples)."""
        latents = self._model.quantizer.decode(codes.transpose(0, 1))
        return self._model.decoder(latents)[:, 0]

    def stream_decoder(self, rows: int, max_frames: int) -> None:
        """Returns None: the start of a clip is padded with a mirror of what follows."""


def load(folder: Path, device: str) -> EncodecNetwork:
    """Loads the weights of a folder. Raises all that transformers raises."""
    from transformers import EncodecModel

    model = EncodecModel.from_pretrained(str(folder), local_files_only=True, use_safetensors=True)
    return EncodecNetwork(model.float().eval().to(device))
