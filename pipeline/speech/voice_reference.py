"""Checks whether a voice can be made of a recording. Pure."""

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import RequestError
from engines.speaker.ge2e.speech import find_speech
from media.resample import Resampler

MIN_S, MAX_S = 3, 15
"""Length of a recording in seconds. Less is a few sounds rather than a voice. More hardly changes
the voice, and its condition grows."""

MIN_SPEECH_MS = 2000
"Shortest speech in a recording, without its pauses."

MIN_LEVEL_DBFS = -45.0
"Softest speech. Below it the noise of a microphone becomes part of the voice."

MIN_SNR_DB = 10.0
"""Least level of the speech above that of its pauses. A louder room would be heard in everything
that the voice says."""

MIN_SOFT_SHARE = 0.25
"""Smallest share of soft frames. Of 16 pieces of music of 12 s, the highest has 0.22; of recordings
of 14 readers, the lowest has 0.29: syllables are separated by softer sound."""

MAX_CLIPPED_SHARE = 0.001
"""Largest share of the samples that may be cut off at full scale: the voice would repeat the
distortion."""

_FULL_SCALE = 32_700
"Absolute value from which a sample may be cut off."

_SOFT, _FRAME_MS, _SECOND_FRAMES = 0.5, 20, 50
"A frame of 20 ms is soft if its amplitude is below half of the mean of its second."

_CLIPPED_RUN = 3
"""Number of successive samples at full scale from which the signal counts as cut off. Loud speech
reaches full scale for single samples only."""


def check_reference(pcm: Pcm, rate_hz: int) -> None:
    """Raises RequestError unsuitable_recording, with what is wrong and what is allowed, for a
    recording of which no voice can be made. Blocks for some 10 ms."""
    length_s = len(pcm) / rate_hz
    if not MIN_S <= length_s <= MAX_S:
        found = f"more than {MAX_S}" if length_s > MAX_S else f"{length_s:.1f}"
        raise _unsuitable(f"it has {found} s; allowed: {MIN_S} to {MAX_S} s")
    if (share := _clipped_share(pcm)) > MAX_CLIPPED_SHARE:
        raise _unsuitable(
            f"{100 * share:.1f} % of it is cut off at full scale; allowed:"
            f" {100 * MAX_CLIPPED_SHARE:.1f} %. Lower the level of the microphone"
        )
    resampler = Resampler(rate_hz, ASR_RATE_HZ)
    resampled = np.concatenate([resampler.push(pcm), resampler.flush()])
    heard = resampled.astype(np.float32) / np.float32(32_768)
    quality = find_speech(heard).quality
    if quality.speech_ms < MIN_SPEECH_MS:
        raise _unsuitable(
            f"it has {quality.speech_ms / 1000:.1f} s of speech; allowed:"
            f" {MIN_SPEECH_MS / 1000:.0f} s and more"
        )
    if quality.level_dbfs < MIN_LEVEL_DBFS:
        raise _unsuitable(
            f"its speech is at {quality.level_dbfs:.0f} dB of full scale; allowed:"
            f" {MIN_LEVEL_DBFS:.0f} dB and more. Speak louder, or nearer to the microphone"
        )
    if quality.snr_db < MIN_SNR_DB:
        raise _unsuitable(
            f"its speech is {quality.snr_db:.0f} dB above the other sound; allowed:"
            f" {MIN_SNR_DB:.0f} dB and more. Record speech alone, without music or noise"
        )
    if _soft_share(heard) < MIN_SOFT_SHARE:
        raise _unsuitable("it sounds like music. Record speech alone, without music or noise")


def _soft_share(samples: npt.NDArray[np.float32]) -> float:
    """Returns the part of soft frames, 0 to 1. `samples`: 16 kHz, a second and more."""
    size = _FRAME_MS * ASR_RATE_HZ // 1000
    seconds = len(samples) // (size * _SECOND_FRAMES)
    frames = samples[: seconds * _SECOND_FRAMES * size].reshape(seconds, _SECOND_FRAMES, size)
    amplitudes = np.sqrt(np.mean(np.square(frames), axis=2))
    return float(np.mean(amplitudes < _SOFT * np.mean(amplitudes, axis=1, keepdims=True)))


def _clipped_share(pcm: Pcm) -> float:
    """Returns the part of the samples, 0 to 1, that are in runs of full scale."""
    # int32, because the absolute value of -32768 is no int16
    at_limit = (np.abs(pcm.astype(np.int32)) >= _FULL_SCALE).astype(np.int32)
    runs = np.convolve(at_limit, np.ones(_CLIPPED_RUN, np.int32), "valid") == _CLIPPED_RUN
    return float(np.convolve(runs, np.ones(_CLIPPED_RUN)).astype(bool).sum() / max(1, len(pcm)))


def _unsuitable(why: str) -> RequestError:
    return RequestError(
        f"no voice can be made of this recording: {why}", code="unsuitable_recording"
    )
