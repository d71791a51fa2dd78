"""Changed voices have the level, the noise and the echo that their names promise."""

import numpy as np
import pytest

from bench.tools.changed_voices import SOFT_DBFS, SOUNDS, far, hoarse, soft, whispered
from core.audio import ASR_RATE_HZ, Pcm


def tone(seconds: float = 1.0) -> Pcm:
    """Returns a buzz of 120 Hz, as a voice without words."""
    time = np.arange(round(seconds * ASR_RATE_HZ)) / ASR_RATE_HZ
    return np.asarray(9000 * np.sign(np.sin(2 * np.pi * 120 * time)), np.int16)


def periodicity(pcm: Pcm) -> float:
    """Returns the correlation of the sound with itself one period of 120 Hz later."""
    lag = round(ASR_RATE_HZ / 120)
    voice = pcm.astype(np.float64)
    return float(np.corrcoef(voice[:-lag], voice[lag:])[0, 1])


@pytest.mark.parametrize("name", SOUNDS)
def test_a_changed_clip_is_as_long_as_before_and_the_same_every_time(name: str) -> None:
    changed = SOUNDS[name](tone())
    assert len(changed) == ASR_RATE_HZ
    assert np.array_equal(changed, SOUNDS[name](tone()))


def test_a_whisper_has_no_voice_and_a_hoarse_one_has_half() -> None:
    assert periodicity(tone()) > 0.9
    assert 0.25 < periodicity(hoarse(tone())) < 0.75
    assert abs(periodicity(whispered(tone()))) < 0.2


def test_soft_speech_has_its_peak_at_minus_50_dbfs() -> None:
    peak = np.abs(soft(tone()).astype(np.float64)).max()
    assert 20 * np.log10(peak / 32_768) == pytest.approx(SOFT_DBFS, abs=1)


def test_far_speech_is_softer_and_goes_on_as_reverberation() -> None:
    click = np.zeros(ASR_RATE_HZ, np.int16)
    click[100] = 30_000
    heard = far(click).astype(np.float64)
    assert 5000 < heard[100] < 7000
    tail, room = heard[200:4000], heard[-4000:]
    assert np.std(tail) > 3 * np.std(room)
