"""Computes log-mel features. For a growing utterance only those of its new samples."""

import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.pcm import Pcm
from engines.asr.whisper.windows import FRAME_SAMPLES

Features = npt.NDArray[np.float32]
"Features of shape (mels, frames)."

MAX_UTTERANCES = 128
MAX_CACHE_BYTES = 64 * 1024 * 1024
"Size of the cache: about 60 utterances of 30 s. The least recently used is dropped first."

_FFT_SAMPLES = 400
_HALF = _FFT_SAMPLES // 2
"Samples that a frame covers on both sides of its centre."

_SILENCE, _RANGE = -10.0, 8.0
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
        self._known: OrderedDict[str, _CachedFeatures] = OrderedDict()
        self.cached_bytes = 0

    def powers(self, pcm: Pcm, utterance: str | None = None) -> Features:
        """Returns log10 of the powers of every frame that covers any of `pcm`.

        pcm: all samples so far, 16 kHz. utterance: id to cache them under; None: no caching.
        """
        known = self._recall(utterance, pcm) if utterance is not None else None
        first = known.frames.shape[1] if known else 0
        new = self._compute(pcm, first)
        powers = np.concatenate([known.frames, new], axis=1) if known else new
        if utterance is not None:
            self._remember(utterance, pcm, powers, known)
        return powers

    def forget(self, utterance: str) -> None:
        """Drops the cache of an utterance, if there is one."""
        known = self._known.pop(utterance, None)
        if known is not None:
            self.cached_bytes -= known.frames.nbytes

    def _recall(self, utterance: str, pcm: Pcm) -> _CachedFeatures | None:
        """Returns the cache of an utterance; None if `pcm` does not begin with the same audio."""
        known = self._known.get(utterance)
        if known is None or zlib.crc32(pcm[: known.samples].data) != known.crc:
            return None
        return known

    def _remember(
        self, utterance: str, pcm: Pcm, powers: Features, known: _CachedFeatures | None
    ) -> None:
        final = max(0, (len(pcm) - _HALF - 1) // FRAME_SAMPLES + 1)
        samples = (final - 1) * FRAME_SAMPLES + _HALF + 1 if final else 0
        since = known.samples if known and known.samples <= samples else 0
        crc = zlib.crc32(pcm[since:samples].data, known.crc if known and since else 0)
        self.forget(utterance)
        frames = np.ascontiguousarray(powers[:, :final])
        self._known[utterance] = _CachedFeatures(frames, samples, crc)
        self.cached_bytes += frames.nbytes
        while len(self._known) > MAX_UTTERANCES or self.cached_bytes > MAX_CACHE_BYTES:
            _, oldest = self._known.popitem(last=False)
            self.cached_bytes -= oldest.frames.nbytes

    def _compute(self, pcm: Pcm, first: int) -> Features:
        """Returns the frames from `first` to the last one that covers any audio."""
        end = -(-(len(pcm) + _HALF) // FRAME_SAMPLES)
        start = first * FRAME_SAMPLES - _HALF
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
        powers: Features = np.log10(np.maximum(mel, 10**_SILENCE)).astype(np.float32)
        return powers


def normalized_window(powers: Features, frames: int, first: int = 0) -> Features:
    """Returns a window of `frames` from frame `first` on, normalised as the model needs it.

    The rest is filled with the features of silence, which are not 0 after normalisation.
    """
    floor = np.float32(powers.max(initial=_SILENCE) - _RANGE)
    window = np.full((powers.shape[0], frames), _SILENCE, np.float32)
    heard = powers[:, first : first + frames]
    window[:, : heard.shape[1]] = heard
    features: Features = (np.maximum(window, floor) + np.float32(4)) / np.float32(4)
    return features
