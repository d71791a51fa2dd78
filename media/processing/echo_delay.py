"""Finds the delay of an echo: compares the audio that was played with the microphone's audio.

It uses generalised cross-correlation (GCC-PHAT): Knapp and Carter, "The generalized correlation
method for estimation of time delay", 1976. It looks at phases only, so neither level nor room
matter much: echoes 30 dB below speech are found.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples

NEAR_SAMPLES = ms_to_samples(1000, ASR_RATE_HZ)
"Number of microphone samples that are compared."
MAX_DELAY_SAMPLES = ms_to_samples(2000, ASR_RATE_HZ)
"Longest delay that is found, in samples."
FAR_SAMPLES = NEAR_SAMPLES + MAX_DELAY_SAMPLES
"Number of reference samples that are needed, up to the same moment."

_STEP = 4
"Number of samples that are added up to one: a quarter of the band is enough."
_SIZE = 1 << ((FAR_SAMPLES // _STEP + NEAR_SAMPLES // _STEP) - 1).bit_length()
"Length of the Fourier transform."
_NOISE_FLOOR = 1e-3
"Level relative to the strongest bin below which a bin holds noise; its phase counts little."


@dataclass(frozen=True, slots=True)
class EchoDelay:
    """Result of a comparison."""

    delay: int
    "Samples from playing to the microphone, at 16 kHz."
    sharpness: float
    "Height of the peak in standard deviations: unrelated sounds reach 8, an echo 15 to 80."


def estimate_delay(far: Pcm, near: Pcm) -> EchoDelay:
    """Returns the delay at which the echo of `far` is most likely in `near`.

    `far`: the last FAR_SAMPLES that were played. `near`: the last NEAR_SAMPLES of the microphone.
    Both are int16 at 16 kHz, and end at the same moment.
    """
    cross = _spectrum(near) * np.conj(_spectrum(far))
    size = np.abs(cross)
    if not (peak := float(size.max())):
        return EchoDelay(0, 0.0)
    correlation = np.fft.irfft(cross / (size + _NOISE_FLOOR * peak), _SIZE)
    lags = np.abs(
        correlation[(np.arange(MAX_DELAY_SAMPLES // _STEP) - MAX_DELAY_SAMPLES // _STEP) % _SIZE]
    )
    best = int(lags.argmax())
    return EchoDelay(best * _STEP, float(lags[best] / np.sqrt(np.mean(lags**2))))


def _spectrum(pcm: Pcm) -> npt.NDArray[np.complexfloating]:
    coarse = pcm.reshape(-1, _STEP).astype(np.float32).sum(axis=1)
    return np.fft.rfft(coarse, _SIZE)
