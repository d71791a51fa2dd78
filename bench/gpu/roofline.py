"""Least time that a window can take on a device of known speed: arithmetic, no measurement."""

from bench.gpu.cuda_clock import DeviceSpeed
from engines.asr.whisper_torch.checkpoint import ModelShape


def encoder_flop(shape: ModelShape, frames: int) -> float:
    """Returns the operations of the convolutions, the layers' matrices and attention for one
    window."""
    positions, width = frames // 2, shape.width
    convolutions = 2 * 3 * width * (frames * shape.mels + positions * width)
    matrices = 2 * positions * 12 * width**2
    attention = 4 * positions**2 * width
    cross = 2 * positions * 2 * width**2 * shape.decoder_layers
    return convolutions + shape.encoder_layers * (matrices + attention) + cross


def step_bytes(
    shape: ModelShape, rows: int, encoder_positions: int, tokens: int, number_bytes: int
) -> float:
    """Returns the bytes that one step reads: all weights once, and each row's keys and values.

    encoder_positions, tokens: positions of audio and of text. number_bytes: size of one number.
    """
    weights = shape.decoder_layers * 14 * shape.width**2 + shape.vocabulary * shape.width
    kept = 2 * shape.decoder_layers * shape.width * (encoder_positions + tokens)
    return number_bytes * (weights + rows * kept)


def floor_ms(
    shape: ModelShape,
    floors: DeviceSpeed,
    *,
    windows: int,
    beams: int,
    frames: int,
    tokens: int,
    bytes_: int,
) -> float:
    """Returns the least time in ms for `windows` windows of `frames` mel frames, with `tokens`
    tokens each."""
    encoding_s = windows * encoder_flop(shape, frames) / floors.flop_per_s
    read = step_bytes(shape, windows * beams, frames // 2, tokens // 2, bytes_)
    return 1000 * (encoding_s + tokens * read / floors.bytes_per_s)
