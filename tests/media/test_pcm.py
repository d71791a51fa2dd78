import numpy as np
import pytest

from core.errors import RequestError
from media.pcm import SILENCE_DBFS, dbfs, downmix, from_bytes, from_float, rms, to_bytes, to_float


def test_bytes_there_and_back() -> None:
    wire = bytes.fromhex("0000 0100 ffff ff7f 0080".replace(" ", ""))
    pcm = from_bytes(wire)
    assert pcm.tolist() == [0, 1, -1, 32767, -32768]
    assert to_bytes(pcm) == wire


def test_half_a_sample_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match="3 bytes") as error:
        from_bytes(b"abc")
    assert error.value.code == "invalid_audio"


def test_floats_there_and_back() -> None:
    pcm = np.array([-32768, -1, 0, 1, 32767], np.int16)
    assert np.array_equal(from_float(to_float(pcm)), pcm)


@pytest.mark.parametrize(
    ("sample", "pcm"), [(1.0, 32767), (2.0, 32767), (-1.0, -32768), (-9.0, -32768), (0.5, 16384)]
)
def test_floats_out_of_range_are_clipped(sample: float, pcm: int) -> None:
    assert from_float(np.array([sample])).tolist() == [pcm]


def test_downmix_is_the_mean() -> None:
    stereo = np.array([100, 200, -32768, -32768, 32767, 32767], np.int16)
    assert downmix(stereo, 2).tolist() == [150, -32768, 32767]
    assert downmix(stereo, 1) is stereo
    with pytest.raises(ValueError, match="reshape"):
        downmix(stereo[:5], 2)


@pytest.mark.parametrize(
    ("pcm", "level", "level_dbfs"),
    [
        ([0, 0], 0.0, SILENCE_DBFS),
        ([], 0.0, SILENCE_DBFS),
        ([-32768, -32768], 1.0, 0.0),
        ([16384, -16384], 0.5, -6.02),
    ],
)
def test_level(pcm: list[int], level: float, level_dbfs: float) -> None:
    samples = np.array(pcm, np.int16)
    assert rms(samples) == pytest.approx(level)
    assert dbfs(samples) == pytest.approx(level_dbfs, abs=0.01)
