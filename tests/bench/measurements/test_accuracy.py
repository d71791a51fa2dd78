"""Decoding of recordings that are longer than a model's window, in the accuracy measurement."""

from collections.abc import Sequence

import numpy as np
import pytest

from bench.measurements.noise import decode_whole
from core.audio import ASR_RATE_HZ
from engines.base import AsrInfo, AsrItem, AsrResult


class CountingModel:
    """A recogniser whose transcript is the duration of the item in seconds."""

    def __init__(self, window_ms: float | None) -> None:
        self.info = AsrInfo("counting", "counting", ("en",), 4, False, window_ms=window_ms)

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        return [AsrResult(str(len(item.pcm) // ASR_RATE_HZ), 1.0, "en") for item in items]

    def forget(self, utterance: str) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("window_ms", "seconds", "text"),
    [(30_000, 70, "30 30 10"), (30_000, 30, "30"), (None, 70, "70"), (30_000, 0, "0")],
)
def test_windows_cover_the_whole_recording(
    window_ms: float | None, seconds: int, text: str
) -> None:
    pcm = np.zeros(seconds * ASR_RATE_HZ, np.int16)
    assert decode_whole(CountingModel(window_ms), "noise", pcm).text == text
