"""Speech recognition that knows one word: it writes `beep` for each burst of sound."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from engines.base import AsrInfo, AsrItem, AsrResult, Segment

FRAME_SAMPLES = ASR_RATE_HZ // 50


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[asr.options]`."""

    word: str = "beep"
    loudness: Annotated[int, Meta(ge=1, le=32767)] = 1000
    "Of a sample: quieter frames of 20 ms are silence."


class BeepCounter:
    """An `engines.base.AsrModel`. The server runs it in a process of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.info = AsrInfo(
            name="beeps",
            model="beeps",
            languages=("en",),
            max_batch=8,
            is_incremental=False,
            tells_noise=True,
        )

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """One result per item, in order."""
        return [self._result(item.pcm) for item in items]

    def forget(self, utterance: str) -> None:
        """Nothing is kept between two calls."""

    def close(self) -> None:
        """Nothing is held open."""

    def _result(self, pcm: Pcm) -> AsrResult:
        frames = pcm[: len(pcm) // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)
        is_loud = np.abs(frames.astype(np.int32)).max(axis=1, initial=0) >= self._settings.loudness
        beeps = int(np.count_nonzero(np.diff(is_loud.astype(np.int8), prepend=0) == 1))
        text = " ".join([self._settings.word] * beeps)
        segment = Segment(text, start_ms=0, end_ms=samples_to_ms(len(pcm), ASR_RATE_HZ))
        return AsrResult(text, 1.0, "en", segments=(segment,) if text else ())


def create(settings: Settings) -> BeepCounter:
    """Called once in each worker process. Libraries that are slow to import are imported here."""
    return BeepCounter(settings)
