"""Sentences with a pause: the silence is as long as it says, and missing words are counted."""

import numpy as np
import pytest

from bench.client.microphone import RATE_HZ
from bench.measurements.pauses import PAUSES_MS, with_pause
from core.audio import ms_to_samples

QUIET = 40
"Of 16 bits: far below anything that is spoken."


@pytest.mark.parametrize("pause_ms", PAUSES_MS)
def test_the_pause_is_as_long_as_it_says(pause_ms: int) -> None:
    pcm = with_pause(("turn on the", "kitchen lights"), pause_ms)
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > QUIET)
    longest = int(np.diff(loud).max())
    assert longest == pytest.approx(ms_to_samples(pause_ms, RATE_HZ), abs=RATE_HZ // 25)
