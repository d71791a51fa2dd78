import numpy as np
import pytest

from core.errors import RequestError
from media.pcm import SILENCE_DBFS, dbfs, from_bytes, rms, to_bytes


def test_bytes_survive_a_round_trip() -> None:
    wire = bytes.fromhex("0000 0100 ffff ff7f 0080".replace(" ", ""))
    pcm = from_bytes(wire)
    assert pcm.tolist() == [0, 1, -1, 32767, -32768]
    assert to_bytes(pcm) == wire


def test_half_a_sample_is_refused_with_the_size() -> None:
    with pytest.raises(RequestError, match="3 bytes") as error:
        from_bytes(b"abc")
    assert error.value.code == "invalid_audio"


@pytest.mark.parametrize(
    ("pcm", "level", "level_dbfs"),
    [
        ([0, 0], 0.0, SILENCE_DBFS),
        ([], 0.0, SILENCE_DBFS),
        ([-32768, -32768], 1.0, 0.0),
        ([16384, -16384], 0.5, -6.02),
    ],
)
def test_levels_are_computed(pcm: list[int], level: float, level_dbfs: float) -> None:
    samples = np.array(pcm, np.int16)
    assert rms(samples) == pytest.approx(level)
    assert dbfs(samples) == pytest.approx(level_dbfs, abs=0.01)
