"""Log-mel features, computed once: a growing utterance pays only for its new samples."""

import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.pcm import Pcm
from engines.asr.whisper.windows import FRAME_SAMPLES

Features = npt.NDArray[np.float32]
"Shape (mels, frames)."

MAX_UTTERANCES = 128
MAX_CACHE_BYTES = 64 * 1024 * 1024
"About 60 utterances of 30 s; the one that was not asked for longest goes first."

_FFT_SAMPLES = 400
_HALF = _FFT_SAMPLES // 2
"A frame hears this far to both sides of its own place."

_SILENCE, _RANGE = -10.0, 8.0
"log10 of the power below which Whisper hears nothing, and how far below the loudest that is."


@dataclass(frozen=True, slots=True)
class _CachedFeatures:
    frames: Features
    "Powers (log10) of all frames that more audio cannot change."
    samples: int
    "What they were computed from."
    crc: int


class LogMelExtractor:
    """As faster-whisper's `FeatureExtractor` on the waveform with silence behind it."""

    def __init__(self, extractor: Any) -> None:
        self._extractor = extractor
        self._window = np.hanning(_FFT_SAMPLES + 1)[:-1].astype(np.float32)
        self._known: OrderedDict[str, _CachedFeatures] = OrderedDict()
        self.cached_bytes = 0

    def powers(self, pcm: Pcm, utterance: str | None = None) -> Features:
        """Of every frame that hears any of `pcm`. Those of an `utterance` are remembered."""
        known = self._recall(utterance, pcm) if utterance is not None else None
        first = known.frames.shape[1] if known else 0
        new = self._compute(pcm, first)
        powers = np.concatenate([known.frames, new], axis=1) if known else new
        if utterance is not None:
            self._remember(utterance, pcm, powers, known)
        return powers

    def forget(self, utterance: str) -> None:
        """Also when there is nothing."""
        known = self._known.pop(utterance, None)
        if known is not None:
            self.cached_bytes -= known.frames.nbytes

    def _recall(self, utterance: str, pcm: Pcm) -> _CachedFeatures | None:
        """None as well when this is not the audio that was heard before under the same name."""
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
        """The frames from `first` to the last that hears any audio."""
        end = -(-(len(pcm) + _HALF) // FRAME_SAMPLES)
        start = first * FRAME_SAMPLES - _HALF
        samples = pcm[max(0, start) :].astype(np.float32) / 32768
        if start < 0:  # what is before the beginning is its mirror image
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
    """A window of `frames` from frame `first` on, as the model was trained to hear it.

    Silence fills the rest: of the waveform, which is not 0 once normalised.
    """
    floor = np.float32(powers.max(initial=_SILENCE) - _RANGE)
    window = np.full((powers.shape[0], frames), _SILENCE, np.float32)
    heard = powers[:, first : first + frames]
    window[:, : heard.shape[1]] = heard
    features: Features = (np.maximum(window, floor) + np.float32(4)) / np.float32(4)
    return features
