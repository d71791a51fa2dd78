"""Recorded speech as other microphones and voices would give it: hoarse, whispered, soft, far."""

from collections.abc import Callable, Mapping

import numpy as np

from bench.tools.noisy_clips import in_quiet_room
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples

ORDER = 18
"Coefficients of the linear prediction: two per formant, and some for the slope."
BLOCK, STEP = 512, 128
"Samples of one analysis window, and between two."

SOFT_DBFS = -50.0
"Peak of soft speech."

FAR_T60_S = 0.5
"Reverberation time of a furnished living room."
FAR_DIRECT_DB = -6.0
"Direct sound over its reverberation at 5 m, some three times the room's critical distance."
FAR_LOSS_DB = 14.0
"Loss of the direct sound from 1 m to 5 m."


def whispered(pcm: Pcm) -> Pcm:
    """Returns the clip as a whisper: its linear prediction filter, excited by noise."""
    random, window = np.random.default_rng(1), np.hanning(BLOCK)
    voice = pcm.astype(np.float64)
    out, weight = np.zeros(len(voice)), np.full(len(voice), 0.1)
    lags = np.abs(np.subtract.outer(np.arange(ORDER), np.arange(ORDER)))
    for at in range(0, len(voice) - BLOCK, STEP):
        frame = voice[at : at + BLOCK] * window
        own = np.correlate(frame, frame, "full")[BLOCK - 1 : BLOCK + ORDER]
        own[0] += 1e-4 * own[0] + 1e-6
        tract = np.concatenate([[1.0], -np.linalg.solve(own[:-1][lags], own[1:])])
        loudness = np.sqrt(np.mean(np.convolve(frame, tract)[:BLOCK] ** 2))
        breath = np.fft.rfft(random.normal(0, loudness, BLOCK), 4 * BLOCK)
        shaped = np.fft.irfft(breath / np.fft.rfft(tract, 4 * BLOCK))[:BLOCK]
        out[at : at + BLOCK] += shaped * window
        weight[at : at + BLOCK] += window**2
    made = out / weight
    made[1:] -= 0.7 * made[:-1]  # a whisper has no low end
    return _at_peak(made, 12_000)


def hoarse(pcm: Pcm) -> Pcm:
    """Returns the clip with as much breath as voice."""
    voice, breath = pcm.astype(np.float64), whispered(pcm).astype(np.float64)
    breath *= np.sqrt(np.mean(voice**2) / (np.mean(breath**2) + 1e-9))
    return _at_peak(voice + breath, 12_000)


def soft(pcm: Pcm) -> Pcm:
    """Returns the clip with its peak at `SOFT_DBFS`, in the noise of a good microphone."""
    hiss = np.random.default_rng(1).normal(0, 1, len(pcm))
    return np.round(_at_peak(pcm, 32_768 * 10 ** (SOFT_DBFS / 20)) + hiss).astype(np.int16)


def far(pcm: Pcm) -> Pcm:
    """Returns the clip as heard from 5 m, in a quiet room."""
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


def as_recorded(pcm: Pcm) -> Pcm:
    """Returns the clip itself."""
    return pcm


SOUNDS: Mapping[str, Callable[[Pcm], Pcm]] = {
    "recorded": as_recorded,
    "hoarse": hoarse,
    "soft": soft,
    "far": far,
    "whispered": whispered,
}
"The changes by name."


def _at_peak(pcm: np.ndarray, peak: float) -> Pcm:
    return np.asarray(peak * pcm / max(1.0, np.abs(pcm).max()), np.int16)
