"""Mimi's decoder, which makes sound of codes step by step for many streams together."""

from pathlib import Path
from typing import Any

from engines.codec.torch_layers.causal_layers import (
    CausalConvTranspose,
    CausalTransformer,
    Rows,
    causal_layer,
)


class MimiDecoder:
    """The decoder's network with the state of its streams."""

    def __init__(self, model: Any, rows: int, max_frames: int) -> None:
        """`model`: transformers' `MimiModel`, whose weights it uses. `rows`: number of streams.
        `max_frames`: largest number of frames in one step."""
        upsample, transformer, seanet = _decoder_parts(model)
        self._quantizer = model.quantizer
        self._upsample = CausalConvTranspose(upsample.conv, rows)
        (stride,) = upsample.conv.stride
        self._transformer = CausalTransformer(transformer, rows, max_frames * stride)
        self._layers = [causal_layer(layer, rows) for layer in seanet.layers]
        self.buffers = [
            buffer
            for part in (self._upsample, self._transformer, *self._layers)
            for buffer in part.buffers
        ]
        "All state: the first dimension is the stream. A row of zeros is a new stream."

    def step(self, codes: Any, rows: Rows) -> Any:
        """Returns the sound of the next frames, shape (rows, samples). `codes`: shape (rows,
        codebooks, frames)."""
        x = self._upsample(self._quantizer.decode(codes), rows)
        x = self._transformer(x.transpose(1, 2), rows).transpose(1, 2)
        for layer in self._layers:
            x = layer(x, rows)
        return x[:, 0]


def _decoder_parts(model: Any) -> tuple[Any, Any, Any]:
    """Returns upsampling, transformer and SEANet. Newer releases of transformers keep them in
    `model.decoder`, older ones in the model."""
    if hasattr(model.decoder, "decoder_seanet"):
        half = model.decoder
        return half.upsample, half.decoder_transformer, half.decoder_seanet
    return model.upsample, model.decoder_transformer, model.decoder


class MimiNetwork:
    """An `engines.codec.torch_layers.segmented_codec.CodecNetwork`."""

    def __init__(self, model: Any) -> None:
        """`model`: transformers' `MimiModel`, ready to run."""
        self._model = model

    def encode(self, sound: Any, codebooks: int) -> Any:
        """Returns the codes, shape (rows, codebooks, frames)."""
        return self._model.encode(sound, num_quantizers=codebooks).audio_codes

    def decode(self, codes: Any) -> Any:
        """Returns the sound, shape (rows, samples)."""
        return self._model.decode(codes).audio_values[:, 0]

    def stream_decoder(self, rows: int, max_frames: int) -> MimiDecoder:
        """Returns a decoder with the state of `rows` streams."""
        return MimiDecoder(self._model, rows, max_frames)


def load(folder: Path, device: str) -> MimiNetwork:
    """Loads the weights of a folder. Raises all that transformers raises."""
    from transformers import MimiModel

    model = MimiModel.from_pretrained(str(folder), local_files_only=True, use_safetensors=True)
    return MimiNetwork(model.float().eval().to(device))
