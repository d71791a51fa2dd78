"""Simulates difficult speech from clear recordings: hoarse, soft, distant and whispered."""

from collections.abc import Callable, Mapping

import numpy as np

from bench.measurements.material.noisy_clips import in_quiet_room
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples

ORDER = 18
"Number of linear prediction coefficients: two per formant, and some for the spectral slope."
BLOCK, STEP = 512, 128
"Samples of an analysis window, and from one window to the next."

SOFT_DBFS = -50.0
"Peak of soft speech."

FAR_T60_S = 0.5
"Reverberation time of a furnished living room."
FAR_DIRECT_DB = -6.0
"""Level of the direct sound relative to its reverberation at 5 m. This is about three times the
distance at which both are equal."""
FAR_LOSS_DB = 14.0
"Loss of the direct sound from 1 m to 5 m."


def make_whispered(pcm: Pcm) -> Pcm:
    """Returns the clip as a whisper: noise through the linear prediction filter of the voice."""
    random, window = np.random.default_rng(1), np.hanning(BLOCK)
    voice = pcm.astype(np.float64)
    out, weight = np.zeros(len(voice)), np.full(len(voice), 0.1)
    lags = np.abs(np.subtract.outer(np.arange(ORDER), np.arange(ORDER)))
    for at in range(0, len(voice) - BLOCK, STEP):
        frame = voice[at : at + BLOCK] * window
        correlation = np.correlate(frame, frame, "full")[BLOCK - 1 : BLOCK + ORDER]
        correlation[0] += 1e-4 * correlation[0] + 1e-6  # keeps the equations solvable
        tract = np.concatenate([[1.0], -np.linalg.solve(correlation[:-1][lags], correlation[1:])])
        loudness = np.sqrt(np.mean(np.convolve(frame, tract)[:BLOCK] ** 2))
        breath = np.fft.rfft(random.normal(0, loudness, BLOCK), 4 * BLOCK)
        shaped = np.fft.irfft(breath / np.fft.rfft(tract, 4 * BLOCK))[:BLOCK]
        out[at : at + BLOCK] += shaped * window
        weight[at : at + BLOCK] += window**2
    whisper = out / weight
    whisper[1:] -= 0.7 * whisper[:-1]  # a whisper has no low frequencies
    return _at_peak(whisper, 12_000)


def make_hoarse(pcm: Pcm) -> Pcm:
    """Returns the clip with a whisper of the same power added."""
    voice, breath = pcm.astype(np.float64), make_whispered(pcm).astype(np.float64)
    breath *= np.sqrt(np.mean(voice**2) / (np.mean(breath**2) + 1e-9))
    return _at_peak(voice + breath, 12_000)


def make_soft(pcm: Pcm) -> Pcm:
    """Returns the clip with its peak at `SOFT_DBFS`, in the noise of a good microphone."""
    hiss = np.random.default_rng(1).normal(0, 1, len(pcm))
    return np.round(_at_peak(pcm, 32_768 * 10 ** (SOFT_DBFS / 20)) + hiss).astype(np.int16)


def make_far(pcm: Pcm) -> Pcm:
    """Returns the clip as a microphone 5 m away records it in a quiet living room."""
    random = np.random.default_rng(1)
    time = np.arange(round(FAR_T60_S * ASR_RATE_HZ)) / ASR_RATE_HZ
    response = random.normal(size=len(time)) * 10 ** (-3 * time / FAR_T60_S)
    response[: ms_to_samples(2, ASR_RATE_HZ)] = 0
    response *= np.sqrt(10 ** (-FAR_DIRECT_DB / 10) / np.sum(response**2))
    response[0] = 1.0
    size = len(pcm) + len(response)
    wet = np.fft.irfft(np.fft.rfft(pcm, size) * np.fft.rfft(response, size), size)
    loss = 10 ** (-FAR_LOSS_DB / 20)
    return in_quiet_room(np.clip(loss * wet[: len(pcm)], -32_768, 32_767).astype(np.int16))


def unchanged(pcm: Pcm) -> Pcm:
    """Returns the clip itself."""
    return pcm


VOICE_CHANGES: Mapping[str, Callable[[Pcm], Pcm]] = {
    "recorded": unchanged,
    "hoarse": make_hoarse,
    "soft": make_soft,
    "far": make_far,
    "whispered": make_whispered,
}
"Changes by name, as in `--sounds`. They take and return samples at ASR_RATE_HZ."


def _at_peak(pcm: np.ndarray, peak: float) -> Pcm:
    return np.asarray(peak * pcm / max(1.0, np.abs(pcm).max()), np.int16)
