"""Audio whose level says what is spoken, for scripted recognisers."""

import numpy as np

from core.audio import Pcm
from tests.pipeline.fakes import FRAME

ONE, TWO = 1000, 2000
'Levels that stand for the words "one" and "two".'


def spoken(*script: tuple[int, int]) -> Pcm:
    """Returns audio of several levels, each for a time in ms. The sign changes with each sample
    pair, so that a codec keeps the level."""
    loud = np.concatenate([np.full(FRAME * ms // 20, level, np.int16) for level, ms in script])
    return loud * np.where(np.arange(len(loud)) // 16 % 2, -1, 1).astype(np.int16)
