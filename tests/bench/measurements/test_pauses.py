"""Sentences with a pause: its length, and the count of missing words."""

import numpy as np
import pytest

from bench.client.microphone import RATE_HZ
from bench.measurements.pauses import PAUSES_MS, with_pause
from core.audio import ms_to_samples

QUIET = 40
"Of 16 bits: far below anything that is spoken."


@pytest.mark.parametrize("pause_ms", PAUSES_MS)
def test_a_pause_has_the_requested_length(pause_ms: int) -> None:
    pcm = with_pause(("turn on the", "kitchen lights"), pause_ms)
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > QUIET)
    longest = int(np.diff(loud).max())
    assert longest == pytest.approx(ms_to_samples(pause_ms, RATE_HZ), abs=RATE_HZ // 25)
