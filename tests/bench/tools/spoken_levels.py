"""Audio whose level stands for a word, for scripted recognisers."""

import numpy as np

from core.audio import Pcm
from tests.pipeline.fakes import FRAME

ONE, TWO = 1000, 2000
'Levels that stand for the words "one" and "two".'


def level_audio(*script: tuple[int, int]) -> Pcm:
    """Returns audio with several levels. script: pairs of a level and its length in ms.

    The sign changes every 16 samples, so that a codec keeps the level.
    """
    loud = np.concatenate([np.full(FRAME * ms // 20, level, np.int16) for level, ms in script])
    return loud * np.where(np.arange(len(loud)) // 16 % 2, -1, 1).astype(np.int16)
