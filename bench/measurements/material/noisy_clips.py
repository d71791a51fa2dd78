"""Adds noise to clips: recorded noise to commands, and the noise of a quiet room to any sound.

The noise begins before the command, as in a session that has been open for a while.
"""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from media.files.decode import decode_file
from media.processing.modes import NoiseMode
from media.processing.noise_suppression import BLOCK_SAMPLES, open_noise_reduction

RECORDED = ("koala_noise", "room_tone_leopard_empty", *(f"speechbrain_noise{n}" for n in (1, 2, 3)))
"Files in noise/ that have the noise of rooms and machines, not of animals."
LEAD = ms_to_samples(2000, ASR_RATE_HZ)
"Samples of noise before the command, in which noise reduction adapts."
STEP = ms_to_samples(700, ASR_RATE_HZ)
"Samples by which the noise is shifted for the next command, so that each has another piece."

ROOM_DBFS = -66.0
"Noise of a quiet room, so that the microphone never delivers digital silence."


def in_quiet_room(pcm: Pcm) -> Pcm:
    """Returns the sound with the noise of a quiet room added."""
    level = 32768 * 10 ** (ROOM_DBFS / 20)
    noisy = pcm + np.random.default_rng(3).normal(0, level, len(pcm))
    return np.clip(np.round(noisy), -32768, 32767).astype(np.int16)


def noise_adder(data: Path, snr_db: float | None, mode: NoiseMode = "off") -> Callable[[Pcm], Pcm]:
    """Returns a function that adds noise to a command at 16 kHz, and then reduces noise.

    data: folder that contains noise/; each call uses the next noise.
    snr_db: power of the command relative to that of the noise; None: no noise is added.
    mode: kind of noise reduction.
    """
    noises = [decode_file(data / "noise" / f"{name}.wav") for name in RECORDED]
    numbers = count()

    def add_noise(command: Pcm) -> Pcm:
        reduction = open_noise_reduction(mode)
        begin = LEAD + ms_to_samples(reduction.late_ms, ASR_RATE_HZ)
        end = begin + len(command)
        sound: Pcm = np.zeros(end + -end % BLOCK_SAMPLES, np.int16)
        sound[LEAD : LEAD + len(command)] = command
        if snr_db is not None:
            number = next(numbers)
            noise = np.roll(noises[number % len(noises)], -number * STEP)
            sound = mix_noise(sound, noise, command, snr_db)
        return reduction.clean(sound)[begin:end]

    return add_noise


def mix_noise(sound: Pcm, noise: Pcm, command: Pcm, snr_db: float) -> Pcm:
    """Adds noise to all of `sound`, `snr_db` below the `command` that begins after LEAD."""
    piece = np.resize(noise, len(sound)).astype(np.float64)
    during = piece[LEAD : LEAD + len(command)]
    wanted_power = np.mean(np.square(command.astype(np.float64))) / 10 ** (snr_db / 10)
    gain = np.sqrt(wanted_power / max(1.0, float(np.mean(np.square(during)))))
    mixed_audio: Pcm = np.clip(np.rint(sound + gain * piece), -(2**15), 2**15 - 1).astype(np.int16)
    return mixed_audio
