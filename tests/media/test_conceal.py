import numpy as np

from media.conceal import Concealer
from tests.media.signals import tone


def test_fill_is_exact_joins_without_a_click_and_fades() -> None:
    concealer = Concealer(960)
    heard = tone(300, 960, 48000)
    concealer.heard(heard)
    filled = concealer.fill(2000)
    assert len(filled) == 2000
    assert filled[0] == heard[-1]
    assert np.abs(filled[:200]).max() > 3 * np.abs(filled[760:960]).max()
    assert not filled[960:].any()
    assert not concealer.fill(960).any()


def test_nothing_heard_fills_silence() -> None:
    assert Concealer(960).fill(480).tolist() == [0] * 480
