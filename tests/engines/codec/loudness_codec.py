"""A codec without a network: it keeps the loudness of each frame. For tests of what is around."""

from collections.abc import Sequence

import numpy as np

from core.errors import EngineError
from engines.base.codec import CodecInfo, Codes, DecodeStreams, Samples

FRAME_SAMPLES = 320
CODEBOOK_SIZE = 64


class LoudnessCodec:
    """An `engines.base.codec.CodecModel` whose codes are the mean loudness of a frame."""

    info = CodecInfo("loudness", "loudness", 24_000, FRAME_SAMPLES, (2, 4), CODEBOOK_SIZE)

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        "Task and number of clips of each call."

    def encode(self, clips: Sequence[Samples], codebooks: int) -> list[Codes]:
        """Returns one level per frame, the same in each codebook."""
        self.calls.append(("encode", len(clips)))
        return [self._codes(clip, codebooks) for clip in clips]

    def decode(self, clips: Sequence[Codes]) -> list[Samples]:
        """Returns a constant of its level for each frame."""
        self.calls.append(("decode", len(clips)))
        return [
            np.repeat(clip[0, 0] / CODEBOOK_SIZE, FRAME_SAMPLES).astype(np.float32)
            for clip in clips
        ]

    def open_streams(self, capacity: int, *, max_frames: int = 1) -> DecodeStreams:
        """Raises EngineError."""
        raise EngineError("codec", "loudness", "it cannot decode frame by frame")

    def close(self) -> None:
        """Nothing is held open."""

    def _codes(self, clip: Samples, codebooks: int) -> Codes:
        frames = -(-len(clip) // FRAME_SAMPLES)
        padded = np.zeros(frames * FRAME_SAMPLES, np.float32)
        padded[: len(clip)] = np.abs(clip)
        levels = padded.reshape(-1, FRAME_SAMPLES).mean(axis=1) * CODEBOOK_SIZE
        return np.tile(np.clip(levels, 0, CODEBOOK_SIZE - 1), (1, codebooks, 1)).astype(np.int16)
