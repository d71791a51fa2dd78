"""Measures of synthesised speech: loudness, pauses, and seams where clauses are joined. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.audio import Pcm, ms_to_samples

Floats = npt.NDArray[np.float64]

FRAME_MS = 20
"Length of the frames whose level and spectrum are compared."

SILENT_DBFS = -60.0
"Level of a frame below which it is silent. Room noise of a voice's recordings is quieter."

NEAR_MS = 400
"Speech on each side of a place, in ms, whose levels are compared: about one word."

BLOCK_S, BLOCK_STEP_S = 0.4, 0.1
ABSOLUTE_GATE_LUFS, RELATIVE_GATE_LU = -70.0, -10.0
"Blocks and gates of ITU-R BS.1770-4."


@dataclass(frozen=True, slots=True)
class Jumps:
    """How much the sound changes over some pauses, in dB: medians and 95th percentiles."""

    spectrum_db: float
    spectrum_p95_db: float
    "Distance of the spectra of the two frames at the beginning of the speech after the pause."
    level_db: float
    level_p95_db: float
    "Difference of the levels of the speech before and after."
    pause_ms: float
    "Median length of the pauses."


def loudness_lufs(pcm: Pcm, rate_hz: int) -> float:
    """Returns the integrated loudness after ITU-R BS.1770-4, for one channel."""
    weighted = _k_weighted(_floats(pcm), rate_hz)
    size, step = int(BLOCK_S * rate_hz), int(BLOCK_STEP_S * rate_hz)
    starts = range(0, max(1, len(weighted) - size + 1), step)
    powers = np.array([np.mean(weighted[at : at + size] ** 2) for at in starts])
    loud = powers[_lufs(powers) > ABSOLUTE_GATE_LUFS]
    if not len(loud):
        return float("-inf")
    loud = loud[_lufs(loud) > _lufs(loud.mean()) + RELATIVE_GATE_LU]
    return float(_lufs(loud.mean()))


def frame_levels_db(pcm: Pcm, rate_hz: int) -> Floats:
    """Returns the level of each frame of FRAME_MS in dBFS."""
    frames = _frames(_floats(pcm), rate_hz)
    levels: Floats = 10 * np.log10(np.mean(frames**2, axis=1) + 1e-12)
    return levels


def pauses(pcm: Pcm, rate_hz: int) -> list[tuple[int, int]]:
    """Returns the pauses between two sounds: first silent sample, first sample after."""
    is_silent = frame_levels_db(pcm, rate_hz) < SILENT_DBFS
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_silent, [False]]).astype(np.int8)))
    size = ms_to_samples(FRAME_MS, rate_hz)
    return [
        (int(begin) * size, int(end) * size)
        for begin, end in zip(edges[::2], edges[1::2], strict=True)
        if begin > 0 and end < len(is_silent)
    ]


def pause_at(found: Sequence[tuple[int, int]], place: int, slack: int) -> tuple[int, int]:
    """Returns the pause around a place, or the place itself as a pause of no length."""
    return next(
        ((begin, end) for begin, end in found if begin - slack <= place <= end + slack),
        (place, place),
    )


def jumps(pcm: Pcm, rate_hz: int, places: Sequence[tuple[int, int]]) -> Jumps:
    """Returns how much the sound changes over these pauses. Raises ValueError without a pause that
    has NEAR_MS of sound on each side."""
    sound, near = _floats(pcm), ms_to_samples(NEAR_MS, rate_hz)
    inner = [(begin, end) for begin, end in places if begin >= near and end + near <= len(sound)]
    if not inner:
        raise ValueError("no pause is far enough from the ends")
    spectrum = [_spectral_distance_db(sound, end, rate_hz) for _, end in inner]
    level = [
        abs(
            _active_level_db(sound[end : end + near])
            - _active_level_db(sound[begin - near : begin])
        )
        for begin, end in inner
    ]
    return Jumps(
        float(np.median(spectrum)),
        float(np.percentile(spectrum, 95)),
        float(np.median(level)),
        float(np.percentile(level, 95)),
        float(np.median([1000 * (end - begin) / rate_hz for begin, end in inner])),
    )


def _floats(pcm: Pcm) -> Floats:
    return pcm.astype(np.float64) / 32_768


def _frames(sound: Floats, rate_hz: int) -> Floats:
    size = ms_to_samples(FRAME_MS, rate_hz)
    return sound[: len(sound) // size * size].reshape(-1, size)


def _spectral_distance_db(sound: Floats, at: int, rate_hz: int) -> float:
    """Returns the mean distance of the spectra before and after a place, down to the silence."""
    size = ms_to_samples(FRAME_MS, rate_hz)
    window = np.hanning(size)
    pair = [
        np.abs(np.fft.rfft(part * window))
        for part in (sound[at - size : at], sound[at : at + size])
    ]
    floor = 10 ** (SILENT_DBFS / 20) * window.sum() / np.sqrt(size)
    before, after = (20 * np.log10(np.maximum(part, floor)) for part in pair)
    return float(np.sqrt(np.mean((before - after) ** 2)))


def _active_level_db(sound: Floats) -> float:
    """Returns the level of the louder half: that of the speech, not of the pause beside it."""
    powers = np.sort(np.mean(sound[: len(sound) // 16 * 16].reshape(16, -1) ** 2, axis=1))
    return float(10 * np.log10(powers[8:].mean() + 1e-12))


def _lufs(power: Floats | np.float64) -> Floats:
    lufs: Floats = -0.691 + 10 * np.log10(np.asarray(power) + 1e-12)
    return lufs


def _k_weighted(sound: Floats, rate_hz: int) -> Floats:
    """Returns the sound after the two filters of BS.1770: a shelf of 4 dB, and a high pass."""
    spectrum = np.fft.rfft(sound)
    hz = np.fft.rfftfreq(len(sound), 1 / rate_hz)
    z = np.exp(-2j * np.pi * hz / rate_hz)
    shelf_hz, shelf_db, shelf_q = 1681.974450955533, 3.999843853973347, 0.7071752369554196
    high_hz, high_q = 38.13547087602444, 0.5003270373238773
    k = np.tan(np.pi * shelf_hz / rate_hz)
    gain = 10 ** (shelf_db / 20)
    middle = gain**0.4996667741545416
    shelf_b = (
        gain + middle * k / shelf_q + k * k,
        2 * (k * k - gain),
        gain - middle * k / shelf_q + k * k,
    )
    shelf_a = (1 + k / shelf_q + k * k, 2 * (k * k - 1), 1 - k / shelf_q + k * k)
    k = np.tan(np.pi * high_hz / rate_hz)
    high_a = (1 + k / high_q + k * k, 2 * (k * k - 1), 1 - k / high_q + k * k)
    scale = high_a[0]
    weight = _response(shelf_b, shelf_a, z) * _response((scale, -2 * scale, scale), high_a, z)
    weighted: Floats = np.fft.irfft(spectrum * weight, len(sound))
    return weighted


def _response(
    b: Sequence[float], a: Sequence[float], z: npt.NDArray[np.complex128]
) -> npt.NDArray[np.complex128]:
    """Returns the frequency response of a filter of second order."""
    above = b[0] + b[1] * z + b[2] * z**2
    below = a[0] + a[1] * z + a[2] * z**2
    response: npt.NDArray[np.complex128] = above / below
    return response
