"""Noise in a live session, with a recogniser that makes up words for any audio."""

import asyncio
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.measurements.noise import NoiseResult, decode_recordings, live, noise_rows
from core.audio import ASR_RATE_HZ, silence
from engines.base import AsrInfo, AsrItem, AsrResult
from tests.pipeline.fakes import FRAME, LoudVads

WORDS = "good morning"


class InventingModel:
    info = AsrInfo("credulous", "credulous", ("en",), 4, is_incremental=False)

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        return [AsrResult(WORDS, 0.9, "en") for _ in items]

    def forget(self, utterance: str) -> None: ...

    def close(self) -> None: ...


def recording(path: Path, *loud_ms: int) -> None:
    """Returns bangs of these lengths, each with a second of silence around it."""
    quiet = silence(1000, ASR_RATE_HZ)
    bangs = [np.full(FRAME * ms // 20, 9000, np.int16) for ms in loud_ms]
    path.parent.mkdir(exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(ASR_RATE_HZ)
        pcm = np.concatenate([quiet, *(part for bang in bangs for part in (bang, quiet))])
        file.writeframes(pcm.tobytes())


def test_a_session_decodes_each_noise_once_and_keeps_the_long_one(tmp_path: Path) -> None:
    recording(tmp_path / "noise" / "door.wav", 100, 600)
    recording(tmp_path / "noise" / "quiet.wav")
    assert asyncio.run(live(InventingModel(), LoudVads(), tmp_path)) == [
        NoiseResult("door.wav utterance 0", WORDS, ""),
        NoiseResult("door.wav utterance 1", WORDS, WORDS),
    ]


def test_the_filter_alone_judges_noise_whole_and_in_parts(tmp_path: Path) -> None:
    recording(tmp_path / "noise" / "door.wav", 100, 600)
    assert list(decode_recordings(InventingModel(), LoudVads(), tmp_path)) == [
        NoiseResult("door.wav", WORDS, WORDS),
        NoiseResult("door.wav at 0 s", WORDS, WORDS),
        NoiseResult("door.wav at 3 s", WORDS, ""),
    ]


def test_singing_is_counted_separately() -> None:
    all_noise = [
        NoiseResult("door.wav", WORDS, ""),
        NoiseResult("vibes.ogg", WORDS, WORDS),
        NoiseResult("lets_go_fishin.ogg utterance 0", WORDS, WORDS),
        NoiseResult("lets_go_fishin.ogg utterance 1", WORDS, WORDS),
        NoiseResult("rain.wav", "", ""),
    ]
    assert list(noise_rows("noise", all_noise)) == [
        ("noise", "5"),
        ("noise: the recogniser alone returns text", "4"),
        ("noise: text without singing, with singing", "1, 2"),
    ]
