"""Cepstra for the acoustic model, computed by us so that level and channel are handled causally.

The filter bank, transform and lifter are those the en-us model was trained with (its feat.params;
equal to PocketSphinx's own front end within 1e-5). Two things differ. A floor of white noise,
relative to the loudest moment so far, is added to each band: digital silence and noise gates put
values into the logarithm that the model never saw, and cost it two words out of ten. And the
cepstral mean is a running one that starts from a prior: a sentence so far is decoded once, whatever
comes after it, so that partials cost only their new samples and the final equals them.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ, Pcm

Cepstra = npt.NDArray[np.float32]
"Shape (frames, 13), mean taken away: what `process_cep` takes with cmn off."
Mel = npt.NDArray[np.float64]
"Power per band, shape (frames, 25)."

FRAME_MS = 10
LOOKAHEAD_FRAMES = 40
"The mean of the first frames is taken over this many: 0.4 s, about the first word."

_HOP, _WINDOW, _FFT = 160, 410, 512
_BANDS, _CEPSTRA, _LIFTER = 25, 13, 22
_LOW_HZ, _HIGH_HZ = 130.0, 6800.0
_EMPHASIS = 0.97
_FLOOR_DB = 33.0
"White noise this far below the loudest moment: 30 hides quiet consonants, 40 leaves zeros deep."
_PRIOR_FRAMES = 100
"Weight of the prior mean: after a second the utterance's own mean counts as much."
_PRIOR_MEAN = np.array([0.0, 6.9, -1.7, 6.6, -8.3, -2.2, -8.4, -0.9, -0.7, -2.9, 1.7, -2.2, 3.7])
"Mean cepstrum of read English speech; the first entry follows the level instead."
_PRIOR_LEVEL = -5.4
"Mean log power of a band in running speech, relative to that of the loudest moment's bands."
_SMALLEST = 1e-4  # of the front end the model was trained with: keeps the logarithm finite


def mel_power(pcm: Pcm) -> Mel:
    """Band powers of every whole window in `pcm`, 16 kHz."""
    x = pcm.astype(np.float64)
    count = (len(x) - _WINDOW) // _HOP + 1
    if count < 1:
        return np.zeros((0, _BANDS))
    x[1:] -= _EMPHASIS * x[:-1]
    windows = np.lib.stride_tricks.sliding_window_view(x, _WINDOW)[::_HOP] * np.hamming(_WINDOW)
    power: Mel = np.abs(np.fft.rfft(windows, _FFT)) ** 2 @ _filters().T
    return power


def loudness(mel: Mel) -> npt.NDArray[np.float64]:
    """Loudest power so far, for each frame; smoothed over 50 ms so that a click does not count."""
    energy = mel.sum(axis=1)
    smooth = np.convolve(energy, np.ones(5) / 5)[: len(energy)]
    smooth[:LOOKAHEAD_FRAMES] = smooth[:LOOKAHEAD_FRAMES].max(initial=0.0)
    loudest: npt.NDArray[np.float64] = np.maximum.accumulate(smooth)
    return loudest


def cepstra(mel: Mel) -> Cepstra:
    """Normalised as they come: a frame depends on those before it and on the first 0.4 s only."""
    count = len(mel)
    if not count:
        return np.zeros((0, _CEPSTRA), np.float32)
    loudest = loudness(mel)
    raw = _raw(mel, loudest)
    seen = np.clip(np.arange(count), min(LOOKAHEAD_FRAMES, count) - 1, None)
    prior = np.tile(_PRIOR_MEAN, (count, 1))
    prior[:, 0] = np.sqrt(_BANDS) * (np.log(loudest / _BANDS + _SMALLEST) + _PRIOR_LEVEL)
    total = np.cumsum(raw, axis=0)[seen] + _PRIOR_FRAMES * prior
    return np.asarray(raw - total / (seen + 1 + _PRIOR_FRAMES)[:, np.newaxis], np.float32)


def cepstra_of_whole(mel: Mel) -> Cepstra:
    """Normalised by level and mean of the whole utterance: for a second look at its end."""
    if not len(mel):
        return np.zeros((0, _CEPSTRA), np.float32)
    raw = _raw(mel, np.full(len(mel), loudness(mel)[-1]))
    return np.asarray(raw - raw.mean(axis=0), np.float32)


def _raw(mel: Mel, loudest: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    floor = _white() * loudest[:, np.newaxis] * 10 ** (-_FLOOR_DB / 10)
    raw: npt.NDArray[np.float64] = np.log(mel + floor + _SMALLEST) @ _transform().T
    return raw


@cache
def _filters() -> npt.NDArray[np.float64]:
    """Triangles of unit area, edges on FFT bins, evenly spaced in mel."""
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
def _white() -> npt.NDArray[np.float64]:
    """How pre-emphasised white noise spreads over the bands; sums to 1."""
    omega = 2 * np.pi * np.arange(_FFT // 2 + 1) / _FFT
    bands = _filters() @ (1 + _EMPHASIS**2 - 2 * _EMPHASIS * np.cos(omega))
    white: npt.NDArray[np.float64] = bands / bands.sum()
    return white


@cache
def _transform() -> npt.NDArray[np.float64]:
    """Orthonormal DCT with the sine lifter, shape (cepstra, bands)."""
    order = np.arange(_CEPSTRA)[:, np.newaxis]
    dct = np.sqrt(2 / _BANDS) * np.cos(np.pi * order * (np.arange(_BANDS) + 0.5) / _BANDS)
    dct[0] *= np.sqrt(0.5)
    transform: npt.NDArray[np.float64] = dct * (1 + _LIFTER / 2 * np.sin(np.pi * order / _LIFTER))
    return transform
