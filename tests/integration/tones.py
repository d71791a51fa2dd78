"""A third-party voice detector and recogniser. Tones are speech and each pitch is one word; the
recogniser's own scores call one of the words noise."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from core.audio import ASR_RATE_HZ, Pcm
from engines.base import AsrInfo, AsrItem, AsrResult, Vad

SHORT, NOISE, CLEAR = "one", "four", "two"
PITCH_HZ = {SHORT: 400, CLEAR: 700, NOISE: 1600}
FRAME = 320
LOUD = 2000
"Well above what a codec leaves behind a tone."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    kind: Literal["vad", "asr"]


class ToneVad:
    frame_samples = FRAME

    def push(self, pcm: Pcm) -> float:
        return float(np.abs(pcm).max() >= LOUD)

    def reset(self) -> None:
        """Does nothing: this detector has no state."""


class ToneVads:
    name = "tones"

    def open(self) -> Vad:
        return ToneVad()


class ToneModel:
    info = AsrInfo("tones", "tones", ("en",), 4, is_incremental=False, tells_noise=True)

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        return [self._one(item) for item in items]

    def forget(self, utterance: str) -> None:
        """Does nothing: this recogniser has no state."""

    def close(self) -> None:
        """Does nothing: this recogniser holds no resources."""

    def _one(self, item: AsrItem) -> AsrResult:
        loud = item.pcm[np.abs(item.pcm) >= LOUD // 2].size
        if not loud:
            return AsrResult("", 0.1, "en")
        spectrum = np.abs(np.fft.rfft(item.pcm))
        hz = spectrum.argmax() * ASR_RATE_HZ / len(item.pcm)
        word = min(PITCH_HZ, key=lambda one: abs(PITCH_HZ[one] - hz))
        threshold = item.options.no_speech_threshold
        if word == NOISE and (threshold is None or threshold < 1):
            return AsrResult("", 0.1, "en", is_rejected=True)
        return AsrResult(word, 0.9, "en")


def create(settings: Settings) -> ToneVads | ToneModel:
    return ToneVads() if settings.kind == "vad" else ToneModel()


def tone(word: str, ms: int, rate_hz: int) -> Pcm:
    time_s = np.arange(rate_hz * ms // 1000) / rate_hz
    pcm: Pcm = (9000 * np.sin(2 * np.pi * PITCH_HZ[word] * time_s)).astype(np.int16)
    return pcm
