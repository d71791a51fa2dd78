"""Counts of missed and false wake words, and the upper bound of the true rate."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench.measurements.wake_words import (
    BEFORE_MS,
    WordCounts,
    count_recordings,
    false_table,
    missed_table,
    upper_bound,
)
from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, ms_to_samples
from engines.base.wake import WakeWord, WakeWordDetection
from media.files.decode import write_wav

LOUD, LOUDER = 5000, 15_000


class LevelDetector:
    """A `WakeWordDetector`: loud sound is `alexa`, louder sound is `okay_nabu`."""

    def push(self, pcm: Pcm) -> tuple[WakeWordDetection, ...]:
        level = int(np.abs(pcm.astype(np.int32)).max())
        if level < LOUD:
            return ()
        return (WakeWordDetection("okay_nabu" if level >= LOUDER else "alexa", BEFORE_MS, 0),)

    def reset(self) -> None: ...


class LevelEngine:
    name = "level"
    words: tuple[WakeWord, ...] = (
        WakeWord("alexa", "Alexa", ()),
        WakeWord("okay_nabu", "Okay Nabu", ()),
    )

    def open(self, names: Sequence[str]) -> LevelDetector:
        return LevelDetector()


def write(path: Path, level: int, length_ms: float = 1800) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pcm = np.full(ms_to_samples(length_ms, ASR_RATE_HZ), level, np.int16)
    write_wav(path, [AudioFrame(pcm, ASR_RATE_HZ, 0)])


@pytest.mark.parametrize(("events", "expected"), [(0, 3.00), (1, 4.74), (5, 10.51)])
def test_the_upper_bound_is_that_of_a_poisson_process(events: int, expected: float) -> None:
    assert upper_bound(events) == pytest.approx(expected, abs=0.01)


def test_words_are_counted_by_the_names_of_recordings(tmp_path: Path) -> None:
    data, more = tmp_path / "data", tmp_path / "more"
    write(data / "wakeword-clips" / "alexa_1.wav", LOUD)
    write(data / "wakeword-clips" / "alexa_2.wav", LOUDER)  # detected as the other word
    write(data / "wakeword-clips" / "computer.wav", LOUD)
    write(data / "speech" / "en" / "alexander.wav", LOUD)
    write(data / "speech" / "long" / "joined.wav", LOUD)
    write(data / "noise" / "room.wav", 0)
    write(more / "okay_nabu_9.wav", LOUDER)
    report = count_recordings(LevelEngine(), data, [more])
    assert report.recorded == {
        "alexa": WordCounts(clips=2, detected=1, others=1),
        "okay_nabu": WordCounts(clips=1, detected=1),
    }
    false = {key: count for key, count in report.false_wakes.items() if count}
    assert false == {
        ("alexa", "other wake words"): 1,
        ("alexa", "speech"): 1,
        ("okay_nabu", "other wake words"): 1,
    }
    seconds = sum(length_s for (word, _), length_s in report.seconds.items() if word == "alexa")
    assert seconds == pytest.approx(4 * 1.8)
    assert "| alexa | 2 | 1 | 1 |" in missed_table("recorded", report.recorded)
    assert "| 0.00 | 1000.0 (at most 3147.9) |" in false_table(report)
