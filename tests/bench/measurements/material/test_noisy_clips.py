"""Commands in noise: the requested level, other noise for each command, and no shift in time."""

from pathlib import Path

import numpy as np
import pytest

from bench.measurements.material.noisy_clips import RECORDED, noise_adder
from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from media.files.decode import write_wav
from media.pcm import dbfs
from media.processing.modes import NoiseMode

pytestmark = pytest.mark.many


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    (tmp_path / "noise").mkdir()
    for name in RECORDED:
        noise = random.normal(0, 1000, 2 * ASR_RATE_HZ).astype(np.int16)
        write_wav(tmp_path / "noise" / f"{name}.wav", [AudioFrame(noise, ASR_RATE_HZ, 0)])
    return tmp_path


def command() -> Pcm:
    """Returns a clip with a gliding pitch."""
    at_s = np.arange(2 * ASR_RATE_HZ) / ASR_RATE_HZ
    phase = 2 * np.pi * (140 * at_s + 4 * np.sin(2 * np.pi * 1.2 * at_s))
    voice = sum(np.sin(n * phase) / n for n in range(1, 20))
    pcm: Pcm = (4000 * voice * np.maximum(0, np.sin(3 * np.pi * at_s))).astype(np.int16)
    return pcm


def test_without_noise_a_command_is_unchanged(data: Path) -> None:
    np.testing.assert_array_equal(noise_adder(data, None)(command()), command())


@pytest.mark.parametrize("snr_db", [20, 5, -5])
def test_noise_has_the_requested_level_below_the_command(data: Path, snr_db: float) -> None:
    added = noise_adder(data, snr_db)(command()).astype(np.int32) - command()
    assert dbfs(command()) - dbfs(added.astype(np.int16)) == pytest.approx(snr_db, abs=0.1)


def test_each_command_has_other_noise_and_each_run_has_the_same(data: Path) -> None:
    first, second = noise_adder(data, 10), noise_adder(data, 10)
    noisy = [first(command()) for _ in range(6)]
    assert len({pcm.tobytes() for pcm in noisy}) == 6
    assert all(np.array_equal(second(command()), pcm) for pcm in noisy)


@pytest.mark.parametrize("mode", ["near_field", "far_field"])
def test_noise_reduction_does_not_shift_a_command(data: Path, mode: NoiseMode) -> None:
    clean, noisy = command(), noise_adder(data, 10, mode)(command())
    assert len(noisy) == len(clean)
    lags = range(-200, 201)
    fits = [float(np.dot(np.roll(clean, lag).astype(np.float64), noisy)) for lag in lags]
    assert lags[int(np.argmax(fits))] == 0
