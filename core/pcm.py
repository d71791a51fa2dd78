"""Samples, rates, and the arithmetic between them and time. Numpy alone: `bench.gpu` runs where
nothing else of the server's is installed.
"""

import numpy as np
import numpy.typing as npt

Pcm = npt.NDArray[np.int16]
"Mono signed 16-bit samples, shape (n,)."

ASR_RATE_HZ = 16_000
"The rate at which the pipeline listens: VAD and ASR engines take it."


def samples_to_ms(samples: int, rate_hz: int) -> float:
    return 1000 * samples / rate_hz


def ms_to_samples(ms: float, rate_hz: int) -> int:
    """Nearest whole number of samples."""
    return round(ms * rate_hz / 1000)
