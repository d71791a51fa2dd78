"""Samples, rates, and conversions between samples and time. Imports only numpy: `bench.gpu` uses it
on machines where nothing else of the server is installed."""

import numpy as np
import numpy.typing as npt

Pcm = npt.NDArray[np.int16]
"Mono signed 16-bit samples, shape (n,)."

ASR_RATE_HZ = 16_000
"Sample rate of the pipeline's input: VAD and ASR engines take it."


def samples_to_ms(samples: int, rate_hz: int) -> float:
    """Returns the length of `samples` samples in ms."""
    return 1000 * samples / rate_hz


def ms_to_samples(ms: float, rate_hz: int) -> int:
    """Returns the number of samples in `ms`, rounded to the nearest whole number."""
    return round(ms * rate_hz / 1000)
