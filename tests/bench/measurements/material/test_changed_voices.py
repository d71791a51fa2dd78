"""Changed voices have the level, noise and reverberation that their names say."""

import numpy as np
import pytest

from bench.measurements.material.changed_voices import (
    SOFT_DBFS,
    VOICE_CHANGES,
    make_far,
    make_hoarse,
    make_soft,
    make_whispered,
)
from core.audio import ASR_RATE_HZ, Pcm

pytestmark = pytest.mark.many


def tone(seconds: float = 1.0) -> Pcm:
    """Returns a buzz of 120 Hz, as a voice without words."""
    time = np.arange(round(seconds * ASR_RATE_HZ)) / ASR_RATE_HZ
    return np.asarray(9000 * np.sign(np.sin(2 * np.pi * 120 * time)), np.int16)


def periodicity(pcm: Pcm) -> float:
    """Returns the correlation of the sound with itself one period of 120 Hz later."""
    lag = round(ASR_RATE_HZ / 120)
    voice = pcm.astype(np.float64)
    return float(np.corrcoef(voice[:-lag], voice[lag:])[0, 1])


@pytest.mark.parametrize("name", VOICE_CHANGES)
def test_a_change_keeps_the_length_and_is_reproducible(name: str) -> None:
    changed = VOICE_CHANGES[name](tone())
    assert len(changed) == ASR_RATE_HZ
    assert np.array_equal(changed, VOICE_CHANGES[name](tone()))


def test_a_whisper_has_no_pitch_and_hoarse_speech_a_weak_one() -> None:
    assert periodicity(tone()) > 0.9
    assert 0.25 < periodicity(make_hoarse(tone())) < 0.75
    assert abs(periodicity(make_whispered(tone()))) < 0.2


def test_soft_speech_has_its_peak_at_minus_50_dbfs() -> None:
    peak = np.abs(make_soft(tone()).astype(np.float64)).max()
    assert 20 * np.log10(peak / 32_768) == pytest.approx(SOFT_DBFS, abs=1)


def test_far_speech_is_softer_and_goes_on_as_reverberation() -> None:
    click = np.zeros(ASR_RATE_HZ, np.int16)
    click[100] = 30_000
    sound = make_far(click).astype(np.float64)
    assert 5000 < sound[100] < 7000
    tail, room = sound[200:4000], sound[-4000:]
    assert np.std(tail) > 3 * np.std(room)
