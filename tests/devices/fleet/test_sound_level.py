import numpy as np
import pytest

from devices.fleet.sound_level import SoundLevelMeter
from media.pcm import SILENCE_DBFS


def test_the_loudest_100_ms_count() -> None:
    meter = SoundLevelMeter(2000)
    meter.push(np.zeros(16_000, np.int16))
    assert meter.level_dbfs == SILENCE_DBFS
    meter.push(np.full(1600, 3277, np.int16))
    meter.push(np.zeros(8000, np.int16))
    assert meter.level_dbfs == pytest.approx(-20, abs=0.01)


@pytest.mark.parametrize("chunk_samples", [1, 100, 320, 512, 1024])
def test_the_size_of_the_chunks_does_not_matter(chunk_samples: int) -> None:
    meter, pcm = SoundLevelMeter(120), np.full(1920, -3277, np.int16)
    for at in range(0, len(pcm), chunk_samples):
        assert not meter.is_full
        meter.push(pcm[at : at + chunk_samples])
    assert meter.is_full
    assert meter.level_dbfs == pytest.approx(-20, abs=0.01)


def test_less_than_a_frame_has_no_level() -> None:
    meter = SoundLevelMeter(120)
    meter.push(np.full(319, 3277, np.int16))
    assert meter.level_dbfs is None


def test_older_sound_is_forgotten() -> None:
    meter = SoundLevelMeter(120)
    meter.push(np.full(1920, 32_767, np.int16))
    meter.push(np.full(1920, 3277, np.int16))
    assert meter.level_dbfs == pytest.approx(-20, abs=0.01)
