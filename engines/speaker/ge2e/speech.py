"""Prepares a recording as the authors of the weights did, and measures its quality.

Soft recordings are made louder, long silences are cut out by WebRTC's VAD, and the rest becomes a
spectrogram of 40 mel bands. Written from their description: every step must give what theirs gives,
or the vectors are worse.
"""

from dataclasses import dataclass
from math import log10

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ
from engines.base.speaker import VoiceQuality
from engines.runtime.mel_filters import FFT_SAMPLES, mel_filters

Samples = npt.NDArray[np.float32]
"Audio as float32, -1 to 1, shape (samples,), 16 kHz."

Mels = npt.NDArray[np.float32]
"Power of the mel bands, shape (frames, MELS)."

MELS = 40
"Number of mel bands."

FRAME_SAMPLES = 160
"Step from one frame to the next: 10 ms at 16 kHz."

LEVEL_DBFS = -30.0
"Level to which softer recordings are raised."

FLOOR_DBFS = -100.0
"Level of silence, in place of minus infinity."

MAX_SNR_DB = 60.0
"Highest ratio of speech to noise that is reported: what 16-bit sound of a room can have."

_FULL_SCALE = 32767
_VAD_AGGRESSIVENESS = 3
_VAD_FRAME_MS = 30
_VAD_FRAME_SAMPLES = _VAD_FRAME_MS * ASR_RATE_HZ // 1000
_SMOOTHED, _SMOOTHED_AFTER = 8, 4
"Frames of the VAD that decide together about one of them, and how many of them come after it."
_KEPT_AROUND = 3
"Frames of the VAD around speech that are kept, too."
_QUIETEST_SHARE = 0.1
"Share of the quietest frames. They count as noise where no frame is without speech."


NO_SPEECH = VoiceQuality(0, FLOOR_DBFS, 0.0)
"Quality of a recording without speech."


@dataclass(frozen=True, slots=True)
class Speech:
    """The speech of a recording, without long silences."""

    samples: Samples
    quality: VoiceQuality


def find_speech(samples: Samples) -> Speech:
    """Returns the speech in a recording, made louder if it is soft, and its quality."""
    samples = samples[: len(samples) - len(samples) % _VAD_FRAME_SAMPLES]
    if not len(samples):
        return Speech(samples, NO_SPEECH)
    gain = _gain(samples)
    frames = (samples * gain).reshape(-1, _VAD_FRAME_SAMPLES)
    is_voiced = _voiced(frames)
    smoothed = np.convolve(is_voiced, np.ones(_SMOOTHED))
    is_speech = smoothed[_SMOOTHED_AFTER:][: len(frames)] > _SMOOTHED / 2
    around = np.convolve(is_speech, np.ones(2 * _KEPT_AROUND + 1))[_KEPT_AROUND:]
    is_kept = around[: len(frames)] > 0
    return Speech(frames[is_kept].reshape(-1), _quality(frames / gain, is_speech, is_voiced))


def mel_spectrogram(samples: Samples) -> Mels:
    """Returns the power of the mel bands, one frame per 10 ms and one at the end."""
    padded = np.pad(samples, FFT_SAMPLES // 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded, FFT_SAMPLES)[::FRAME_SAMPLES]
    hann = np.hanning(FFT_SAMPLES + 1)[:-1].astype(np.float32)
    spectrum = np.fft.rfft(windows * hann)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    mels: Mels = power.astype(np.float32) @ mel_filters(MELS).T.astype(np.float32)
    return mels


def _gain(samples: Samples) -> np.float32:
    """Returns the factor that raises a soft recording to `LEVEL_DBFS`; 1 for other ones."""
    return np.float32(10 ** (max(0.0, LEVEL_DBFS - _level_dbfs(samples)) / 20))


def _voiced(frames: Samples) -> npt.NDArray[np.bool_]:
    """Returns the decisions of WebRTC's VAD for frames of 30 ms."""
    from webrtcvad import Vad

    vad = Vad(_VAD_AGGRESSIVENESS)
    pcm = np.clip(np.round(frames * _FULL_SCALE), -32768, _FULL_SCALE).astype("<i2")
    return np.array([vad.is_speech(frame.tobytes(), ASR_RATE_HZ) for frame in pcm], np.bool_)


def _quality(
    frames: Samples, is_speech: npt.NDArray[np.bool_], is_voiced: npt.NDArray[np.bool_]
) -> VoiceQuality:
    """Measures a recording. `is_speech`: the frames within speech. `is_voiced`: the same without
    smoothing, so that the gaps between words are missing."""
    if not is_speech.any():
        return NO_SPEECH
    powers = np.mean(np.square(frames), axis=1)
    others = powers[~(is_speech | is_voiced)]
    if not len(others):
        others = np.sort(powers)[: max(1, round(_QUIETEST_SHARE * len(powers)))]
    noise, speech = float(np.mean(others)), float(np.mean(powers[is_speech]))
    snr_db = _decibels(max(0.0, speech - noise)) - _decibels(noise)
    return VoiceQuality(
        speech_ms=int(is_speech.sum()) * _VAD_FRAME_MS,
        level_dbfs=round(_decibels(speech), 1),
        snr_db=round(min(max(snr_db, 0.0), MAX_SNR_DB), 1),
    )


def _level_dbfs(samples: Samples) -> float:
    return _decibels(float(np.mean(np.square(samples, dtype=np.float64))))


def _decibels(power: float) -> float:
    return 10 * log10(power) if power > 10 ** (FLOOR_DBFS / 10) else FLOOR_DBFS
