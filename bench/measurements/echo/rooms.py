"""Simulation of a loudspeaker next to a microphone: the assistant's voice returns through a room.

A room is a direct sound followed by exponentially decaying noise. Nothing was recorded in a real
room.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples

Wave = npt.NDArray[np.float64]
"Sound as float64, full scale 1, 16 kHz."

NEAR_RMS = 0.05
"Level of the person's voice, as a share of full scale (-26 dBFS); echo levels are relative to it."
ROOM_RMS = 0.0003
"Level of the noise of room and microphone (-70 dBFS)."
OVERSAMPLING = 4
"Factor at which linear interpolation is accurate enough to play at another speed."


@dataclass(frozen=True, slots=True)
class EchoRoom:
    """Properties of the echo."""

    delay_ms: float = 120
    level_db: float = -6
    "Level of the echo, relative to the person's voice."
    t60_s: float = 0.3
    clip: float = 0.0
    "Overdrive of the loudspeaker: 0 none, 2 audible."
    drift_ppm: float = 0
    "Speed difference of the device's clock; positive if it runs faster than the server's."
    jump_ms: float = 0
    "Change of the delay in the middle of the recording."
    seed: int = 1


def echo(far: Pcm, scene: EchoRoom, until: int | None = None) -> Wave:
    """Returns the part of `far` that arrives at the microphone, at the same positions; full scale
    is 1.

    far: 16 kHz. until: sample at which playing stops; nothing else changes.
    """
    sound = far / 32768
    if scene.clip:
        peak = np.abs(sound).max() / (1 + scene.clip)
        sound = peak * np.tanh(sound / peak)
    response = room(scene.t60_s, scene.seed)
    heard = _convolved(_at_another_speed(sound, scene.drift_ppm), response)[: len(far)]
    gain = NEAR_RMS * 10 ** (scene.level_db / 20) / _active_rms(heard)
    if until is not None:
        sound[until:] = 0
        heard = _convolved(_at_another_speed(sound, scene.drift_ppm), response)[: len(far)]
    return gain * _delayed(heard, scene)


def microphone(echoed: Wave, near: Pcm | None = None, near_at: int = 0, *, seed: int = 1) -> Pcm:
    """Mixes the echo, the room's own noise and, from sample `near_at`, a person."""
    mixed = echoed + np.random.default_rng(seed).normal(0, ROOM_RMS, len(echoed))
    if near is not None:
        mixed[near_at : near_at + len(near)] += voice(near)[: max(0, len(mixed) - near_at)]
    return np.clip(np.round(mixed * 32768), -32768, 32767).astype(np.int16)


def voice(near: Pcm) -> Wave:
    """Returns a person's words at the level to which echoes are relative."""
    words = near / 32768
    return words * NEAR_RMS / _active_rms(words)


def room(t60_s: float, seed: int) -> Wave:
    """Returns an impulse response: the direct sound, then a tail with half of its energy."""
    random = np.random.default_rng(seed)
    time = np.arange(round(t60_s * ASR_RATE_HZ)) / ASR_RATE_HZ
    tail = random.normal(size=len(time)) * 10 ** (-3 * time / t60_s)
    tail[: ms_to_samples(2, ASR_RATE_HZ)] = 0
    tail *= np.sqrt(0.5 / np.sum(tail**2))
    tail[0] = 1.0
    return tail


def _active_rms(wave: Wave) -> float:
    """Returns the RMS of the 20 ms blocks within 30 dB of the loudest, so that pauses do not
    count."""
    size = ASR_RATE_HZ // 50
    power = np.mean(wave[: len(wave) // size * size].reshape(-1, size) ** 2, axis=1)
    return float(np.sqrt(power[power > power.max() / 1000].mean()))


def _convolved(wave: Wave, response: Wave) -> Wave:
    size = len(wave) + len(response)
    return np.fft.irfft(np.fft.rfft(wave, size) * np.fft.rfft(response, size), size)


def _delayed(heard: Wave, scene: EchoRoom) -> Wave:
    early = ms_to_samples(scene.delay_ms, ASR_RATE_HZ)
    late = early + ms_to_samples(scene.jump_ms, ASR_RATE_HZ)
    half = len(heard) // 2
    first, second = (np.concatenate([np.zeros(delay), heard]) for delay in (early, late))
    return np.concatenate([first[:half], second[half : len(heard)]])


def _at_another_speed(wave: Wave, drift_ppm: float) -> Wave:
    if not drift_ppm:
        return wave
    size = len(wave) - len(wave) % 2
    fine = np.fft.irfft(np.fft.rfft(wave[:size]), size * OVERSAMPLING) * OVERSAMPLING
    places = np.arange(len(wave)) * (1 + drift_ppm / 1e6) * OVERSAMPLING
    slowed: Wave = np.interp(places, np.arange(len(fine)), fine, right=0.0)
    return slowed
