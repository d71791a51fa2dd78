"""Log-mel features on the device, equal to those of `engines.asr.whisper.features` in numpy."""

import numpy as np
import torch

from core.audio import Pcm
from engines.asr.whisper.features import Features
from engines.asr.whisper.windows import FRAME_SAMPLES
from engines.asr.whisper_torch.batching.kv_cache import upload

_FFT_SAMPLES = 400
_HALF_FFT_SAMPLES = _FFT_SAMPLES // 2
_PLANNED_FRAMES = 100
"Frames are computed in multiples of this (1 s), as a GPU makes a plan for each number of them."
_MIN_LOG_POWER, _LOG_POWER_RANGE = -10.0, 8.0
"Least log10 of a power, and the range in decades below the loudest one that Whisper keeps."

_LINEAR_HZ, _LINEAR_STEP_HZ, _LOG_STEP = 1000.0, 200.0 / 3, np.log(6.4) / 27.0
"Slaney's mel scale: linear up to 1 kHz, then logarithmic."
_MAX_MEL = 45.245640471924965
"Upper end of the filters, 8 kHz, on that scale."


class DeviceLogMel:
    """Computes features with `mels` mels on one device."""

    def __init__(self, mels: int, device: torch.device) -> None:
        self._device = device
        self._window = torch.hann_window(_FFT_SAMPLES, device=device)
        self._filters = torch.from_numpy(mel_filters(mels)).to(device)

    def powers(self, pcm: Pcm) -> torch.Tensor:
        """Returns log10 of the power of every frame that covers any of `pcm`, (mels, frames).

        pcm: 16 kHz.
        """
        frames = -(-(len(pcm) + _HALF_FFT_SAMPLES) // FRAME_SAMPLES)
        samples = upload(torch.from_numpy(pcm.astype(np.float32) / 32768), self._device)
        start = torch.nn.functional.pad(samples, (0, max(0, _HALF_FFT_SAMPLES + 1 - len(samples))))
        before = start[1 : _HALF_FFT_SAMPLES + 1].flip(0)  # the audio is mirrored at its beginning
        planned_frames = -(-frames // _PLANNED_FRAMES) * _PLANNED_FRAMES
        needed = (planned_frames - 1) * FRAME_SAMPLES + _FFT_SAMPLES
        samples = torch.cat([before, samples])
        samples = torch.nn.functional.pad(samples, (0, max(0, needed - len(samples))))[:needed]
        spectrum = torch.stft(
            samples,
            _FFT_SAMPLES,
            FRAME_SAMPLES,
            window=self._window,
            center=False,
            return_complex=True,
        )
        mel = self._filters @ spectrum[:, :frames].abs().square()
        return mel.clamp(min=10**_MIN_LOG_POWER).log10()


def normalized_window_tensor(powers: torch.Tensor, frames: int, first: int = 0) -> torch.Tensor:
    """Returns a normalised window of `frames` from frame `first` on, filled up with silence."""
    floor = powers.amax() - _LOG_POWER_RANGE
    window = powers[:, first : first + frames]
    window = torch.nn.functional.pad(window, (0, frames - window.shape[1]), value=_MIN_LOG_POWER)
    return (torch.maximum(window, floor) + 4) / 4


def mel_filters(mels: int) -> Features:
    """Returns triangular filters of equal area on Slaney's scale, 0 to 8 kHz.

    Shape (mels, frequencies).
    """
    scale = np.linspace(0, _MAX_MEL, mels + 2)
    corner = _LINEAR_HZ / _LINEAR_STEP_HZ
    above = _LINEAR_HZ * np.exp(_LOG_STEP * (scale - corner))
    hz = np.where(scale >= corner, above, scale * _LINEAR_STEP_HZ)
    bins = np.fft.rfftfreq(_FFT_SAMPLES, 1 / 16_000)
    ramps = hz[:, None] - bins[None]
    widths = np.diff(hz)[:, None]
    rising, falling = -ramps[:-2] / widths[:-1], ramps[2:] / widths[1:]
    filters: Features = np.maximum(0, np.minimum(rising, falling)).astype(np.float64)
    filters *= (2 / (hz[2:] - hz[:mels]))[:, None]
    return filters.astype(np.float32)
