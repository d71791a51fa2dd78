"""Computes cepstra for the acoustic model. Level and channel are normalised causally.

The filter bank, transform and lifter are those of the en-us model's training (its feat.params;
equal to PocketSphinx's own front end within 1e-5). Two things differ:

- White noise, relative to the loudest moment so far, is added to each band. Digital silence and
  noise gates give logarithms that the model never saw, which costs two words out of ten.
- The cepstral mean is a running mean that starts from a prior. So the frames of an utterance do not
  change when more audio comes: partials cost only their new samples, and the final equals them.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ, Pcm

Cepstra = npt.NDArray[np.float32]
"Cepstra without their mean, shape (frames, 13), as `process_cep` takes them with cmn off."
Mel = npt.NDArray[np.float64]
"Power per frame and band, shape (frames, 25)."

FRAME_MS = 10
"Time from one frame of features to the next, in ms."

LOOKAHEAD_FRAMES = 40
"Frames over which the mean of the first frames is taken: 0.4 s, about the first word."

_HOP, _WINDOW, _FFT = 160, 410, 512
_BANDS, _CEPSTRA, _LIFTER = 25, 13, 22
_LOW_HZ, _HIGH_HZ = 130.0, 6800.0
_EMPHASIS = 0.97
_FLOOR_DB = 33.0
"""Level of the white noise below the loudest moment. 30 dB hides quiet consonants; with 40 dB the
logarithms of digital silence stay too low."""
_PRIOR_FRAMES = 100
"Weight of the prior mean, in frames: after 1 s the utterance's own mean has the same weight."
_PRIOR_MEAN = np.array([0.0, 6.9, -1.7, 6.6, -8.3, -2.2, -8.4, -0.9, -0.7, -2.9, 1.7, -2.2, 3.7])
"Mean cepstrum of read English speech. Its first entry is not used: it depends on the level."
_PRIOR_LEVEL = -5.4
"Mean log power of a band in running speech, relative to that in the loudest moment."
_MIN_POWER = 1e-4  # value of the front end in training; keeps the logarithm finite


def mel_power(pcm: Pcm) -> Mel:
    """Returns the band powers of every complete window in `pcm`, 16 kHz."""
    x = pcm.astype(np.float64)
    count = (len(x) - _WINDOW) // _HOP + 1
    if count < 1:
        return np.zeros((0, _BANDS))
    x[1:] -= _EMPHASIS * x[:-1]
    windows = np.lib.stride_tricks.sliding_window_view(x, _WINDOW)[::_HOP] * np.hamming(_WINDOW)
    power: Mel = np.abs(np.fft.rfft(windows, _FFT)) ** 2 @ _mel_filters().T
    return power


def loudness(mel: Mel) -> npt.NDArray[np.float64]:
    """Returns the largest power up to each frame, shape (frames,).

    Powers are smoothed over 50 ms, so that a click does not count.
    """
    energy = mel.sum(axis=1)
    smooth = np.convolve(energy, np.ones(5) / 5)[: len(energy)]
    smooth[:LOOKAHEAD_FRAMES] = smooth[:LOOKAHEAD_FRAMES].max(initial=0.0)
    loudest: npt.NDArray[np.float64] = np.maximum.accumulate(smooth)
    return loudest


def cepstra(mel: Mel) -> Cepstra:
    """Returns causally normalised cepstra.

    A frame depends only on the frames before it and on the first 0.4 s.
    """
    count = len(mel)
    if not count:
        return np.zeros((0, _CEPSTRA), np.float32)
    loudest = loudness(mel)
    raw = _unnormalised_cepstra(mel, loudest)
    seen = np.clip(np.arange(count), min(LOOKAHEAD_FRAMES, count) - 1, None)
    prior = np.tile(_PRIOR_MEAN, (count, 1))
    prior[:, 0] = np.sqrt(_BANDS) * (np.log(loudest / _BANDS + _MIN_POWER) + _PRIOR_LEVEL)
    total = np.cumsum(raw, axis=0)[seen] + _PRIOR_FRAMES * prior
    return np.asarray(raw - total / (seen + 1 + _PRIOR_FRAMES)[:, np.newaxis], np.float32)


def whole_utterance_cepstra(mel: Mel) -> Cepstra:
    """Returns cepstra normalised by level and mean of the whole utterance, to decode it again."""
    if not len(mel):
        return np.zeros((0, _CEPSTRA), np.float32)
    raw = _unnormalised_cepstra(mel, np.full(len(mel), loudness(mel)[-1]))
    return np.asarray(raw - raw.mean(axis=0), np.float32)


def _unnormalised_cepstra(mel: Mel, loudest: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    floor = _white_noise_shares() * loudest[:, np.newaxis] * 10 ** (-_FLOOR_DB / 10)
    raw: npt.NDArray[np.float64] = np.log(mel + floor + _MIN_POWER) @ _lifted_dct().T
    return raw


@cache
def _mel_filters() -> npt.NDArray[np.float64]:
    """Returns triangular filters of unit area, edges on FFT bins, evenly spaced in mel."""
    low, high = (2595 * np.log10(1 + hz / 700) for hz in (_LOW_HZ, _HIGH_HZ))
    edges = 700 * (10 ** (np.linspace(low, high, _BANDS + 2) / 2595) - 1)
    bin_hz = ASR_RATE_HZ / _FFT
    edges = np.floor(edges / bin_hz + 0.5) * bin_hz
    hz = np.arange(_FFT // 2 + 1) * bin_hz
    left, centre, right = (edges[i : i + _BANDS, np.newaxis] for i in range(3))
    slope = np.minimum((hz - left) / (centre - left), (right - hz) / (right - centre))
    filters: npt.NDArray[np.float64] = np.clip(slope, 0, None) * 2 / (right - left)
    return filters


@cache
def _white_noise_shares() -> npt.NDArray[np.float64]:
    """Returns the share of each band in the power of pre-emphasised white noise; sums to 1."""
    omega = 2 * np.pi * np.arange(_FFT // 2 + 1) / _FFT
    bands = _mel_filters() @ (1 + _EMPHASIS**2 - 2 * _EMPHASIS * np.cos(omega))
    white: npt.NDArray[np.float64] = bands / bands.sum()
    return white


@cache
def _lifted_dct() -> npt.NDArray[np.float64]:
    """Returns the orthonormal DCT with the sine lifter, shape (cepstra, bands)."""
    order = np.arange(_CEPSTRA)[:, np.newaxis]
    dct = np.sqrt(2 / _BANDS) * np.cos(np.pi * order * (np.arange(_BANDS) + 0.5) / _BANDS)
    dct[0] *= np.sqrt(0.5)
    transform: npt.NDArray[np.float64] = dct * (1 + _LIFTER / 2 * np.sin(np.pi * order / _LIFTER))
    return transform
