"""Noise suppression: steady noise gets quieter, voices stay, and the delay is as stated."""

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from media.pcm import dbfs
from media.processing.modes import NoiseMode
from media.processing.noise_suppression import (
    BLOCK_SAMPLES,
    DELAY_MS,
    NoiseSuppression,
    open_noise_reduction,
)

pytestmark = pytest.mark.many

SECOND = ASR_RATE_HZ
LATE = ms_to_samples(DELAY_MS, ASR_RATE_HZ)


def hiss(seconds: float, level: float = 300) -> Pcm:
    random = np.random.default_rng(1)
    pcm: Pcm = random.normal(0, level, round(seconds * SECOND)).astype(np.int16)
    return pcm


def vowels(seconds: float) -> Pcm:
    """Returns a voice of 110 to 170 Hz that says three syllables a second."""
    at_s = np.arange(round(seconds * SECOND)) / SECOND
    phase = 2 * np.pi * (140 * at_s + 4 * np.sin(2 * np.pi * 1.2 * at_s))
    voice = sum(np.sin(n * phase) / n for n in range(1, 20))
    pcm: Pcm = (4000 * voice * np.maximum(0, np.sin(3 * np.pi * at_s)) ** 2).astype(np.int16)
    return pcm


def cleaned(reduction: NoiseSuppression, pcm: Pcm, size: int = 320) -> Pcm:
    pieces = [reduction.clean(pcm[at : at + size]) for at in range(0, len(pcm), size)]
    return np.concatenate(pieces)


def test_audio_is_unchanged_with_suppression_off() -> None:
    reduction, pcm = open_noise_reduction("off"), hiss(0.02)
    assert reduction.clean(pcm) is pcm
    assert reduction.late_ms == 0


@pytest.mark.parametrize(("mode", "db"), [("near_field", 6), ("far_field", 18)])
def test_steady_noise_gets_quieter_once_it_is_learned(mode: NoiseMode, db: float) -> None:
    noise = hiss(4)
    left = cleaned(open_noise_reduction(mode), noise)
    known = slice(3 * SECOND, None)
    assert dbfs(noise[known]) - dbfs(left[known]) == pytest.approx(db, abs=0.5)


@pytest.mark.parametrize("mode", ["near_field", "far_field"])
def test_a_voice_is_kept_and_delayed_by_6_ms(mode: NoiseMode) -> None:
    voice, reduction = np.concatenate([hiss(2, 30), vowels(2)]), open_noise_reduction(mode)
    out = cleaned(reduction, voice)
    assert reduction.late_ms == DELAY_MS
    then, now = voice[:-LATE].astype(np.float64), out[LATE:].astype(np.float64)
    lags = range(-3, 4)
    fits = [float(np.corrcoef(np.roll(then, lag), now)[0, 1]) for lag in lags]
    assert lags[int(np.argmax(fits))] == 0
    assert max(fits) > 0.99
    assert abs(dbfs(voice[2 * SECOND :]) - dbfs(out[2 * SECOND :])) < 1


@pytest.mark.parametrize("size", [BLOCK_SAMPLES, 320, 480, SECOND])
def test_any_number_of_whole_blocks_gives_the_same_audio(size: int) -> None:
    pcm = vowels(1) + hiss(1)
    expected = cleaned(open_noise_reduction("far_field"), pcm, 2 * BLOCK_SAMPLES)
    np.testing.assert_array_equal(cleaned(open_noise_reduction("far_field"), pcm, size), expected)


@pytest.mark.parametrize("size", [1, 100, 333, 401])
def test_other_sizes_give_the_same_audio_one_block_later(size: int) -> None:
    pcm = (vowels(1) + hiss(1))[: SECOND // 4]
    expected = cleaned(open_noise_reduction("far_field"), pcm)
    out = cleaned(open_noise_reduction("far_field"), pcm, size)
    assert len(out) == len(pcm)
    assert not out[:BLOCK_SAMPLES].any()
    np.testing.assert_array_equal(out[BLOCK_SAMPLES:], expected[:-BLOCK_SAMPLES])
