"""Computes log-mel features. For a growing utterance only those of its new samples."""

import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.audio import Pcm
from engines.asr.whisper.windows import FRAME_SAMPLES

Features = npt.NDArray[np.float32]
"Features of shape (mels, frames)."

MAX_UTTERANCES = 128
MAX_CACHE_BYTES = 64 * 1024 * 1024
"Size of the cache: about 60 utterances of 30 s. The least recently used is dropped first."

_FFT_SAMPLES = 400
_HALF_FFT_SAMPLES = _FFT_SAMPLES // 2
"Samples that a frame covers on both sides of its centre."

_MIN_LOG_POWER, _LOG_POWER_RANGE = -10.0, 8.0
"Least log10 of a power, and the range in decades below the loudest one that Whisper keeps."


@dataclass(frozen=True, slots=True)
class _CachedFeatures:
    frames: Features
    "Powers (log10) of all frames that more audio cannot change."
    samples: int
    "Number of samples that they were computed from."
    crc: int
    "Checksum of those samples."


class LogMelExtractor:
    """Computes the same features as faster-whisper's `FeatureExtractor`, with a cache.

    The waveform counts as followed by silence.
    """

    def __init__(self, extractor: Any) -> None:
        self._extractor = extractor
        self._window = np.hanning(_FFT_SAMPLES + 1)[:-1].astype(np.float32)
        self._cache: OrderedDict[str, _CachedFeatures] = OrderedDict()
        self.cached_bytes = 0

    def powers(self, pcm: Pcm, utterance: str | None = None) -> Features:
        """Returns log10 of the powers of every frame that covers any of `pcm`.

        pcm: all samples so far, 16 kHz. utterance: id to cache them under; None: no caching.
        """
        cached = self._cached_features(utterance, pcm) if utterance is not None else None
        first = cached.frames.shape[1] if cached else 0
        new = self._compute(pcm, first)
        powers = np.concatenate([cached.frames, new], axis=1) if cached else new
        if utterance is not None:
            self._store(utterance, pcm, powers, cached)
        return powers

    def forget(self, utterance: str) -> None:
        """Drops the cache of an utterance, if there is one."""
        cached = self._cache.pop(utterance, None)
        if cached is not None:
            self.cached_bytes -= cached.frames.nbytes

    def _cached_features(self, utterance: str, pcm: Pcm) -> _CachedFeatures | None:
        """Returns the cache of an utterance; None if `pcm` does not begin with the same audio."""
        cached = self._cache.get(utterance)
        if cached is None or zlib.crc32(pcm[: cached.samples].data) != cached.crc:
            return None
        return cached

    def _store(
        self, utterance: str, pcm: Pcm, powers: Features, cached: _CachedFeatures | None
    ) -> None:
        complete_frames = max(0, (len(pcm) - _HALF_FFT_SAMPLES - 1) // FRAME_SAMPLES + 1)
        samples = (
            (complete_frames - 1) * FRAME_SAMPLES + _HALF_FFT_SAMPLES + 1 if complete_frames else 0
        )
        checked_samples = cached.samples if cached and cached.samples <= samples else 0
        crc = zlib.crc32(
            pcm[checked_samples:samples].data, cached.crc if cached and checked_samples else 0
        )
        self.forget(utterance)
        frames = np.ascontiguousarray(powers[:, :complete_frames])
        self._cache[utterance] = _CachedFeatures(frames, samples, crc)
        self.cached_bytes += frames.nbytes
        while len(self._cache) > MAX_UTTERANCES or self.cached_bytes > MAX_CACHE_BYTES:
            _, oldest = self._cache.popitem(last=False)
            self.cached_bytes -= oldest.frames.nbytes

    def _compute(self, pcm: Pcm, first: int) -> Features:
        """Returns the frames from `first` to the last one that covers any audio."""
        end = -(-(len(pcm) + _HALF_FFT_SAMPLES) // FRAME_SAMPLES)
        start = first * FRAME_SAMPLES - _HALF_FFT_SAMPLES
        samples = pcm[max(0, start) :].astype(np.float32) / 32768
        if start < 0:  # the audio is mirrored at its beginning
            samples = np.pad(samples, (0, max(0, 1 - start - len(samples))))
            samples = np.concatenate([samples[-start:0:-1], samples])
        needed = (end - first - 1) * FRAME_SAMPLES + _FFT_SAMPLES
        samples = np.pad(samples, (0, max(0, needed - len(samples))))[:needed]
        spectrum = self._extractor.stft(
            samples,
            _FFT_SAMPLES,
            FRAME_SAMPLES,
            window=self._window,
            center=False,
            return_complex=True,
        )
        power = np.abs(spectrum.astype(np.complex64)) ** 2
        mel = self._extractor.mel_filters @ power
        powers: Features = np.log10(np.maximum(mel, 10**_MIN_LOG_POWER)).astype(np.float32)
        return powers


def normalized_window(powers: Features, frames: int, first: int = 0) -> Features:
    """Returns a window of `frames` from frame `first` on, normalised as the model needs it.

    The rest is filled with the features of silence, which are not 0 after normalisation.
    """
    floor = np.float32(powers.max(initial=_MIN_LOG_POWER) - _LOG_POWER_RANGE)
    window = np.full((powers.shape[0], frames), _MIN_LOG_POWER, np.float32)
    audible = powers[:, first : first + frames]
    window[:, : audible.shape[1]] = audible
    features: Features = (np.maximum(window, floor) + np.float32(4)) / np.float32(4)
    return features
