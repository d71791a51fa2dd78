"""Test signals, and the analysis of received audio."""

import numpy as np

from core.audio import AudioFrame, Pcm


def tone(hz: float, samples: int, rate_hz: int, start: int = 0, level: int = 8000) -> Pcm:
    """Returns a sine wave of samples [start, start + samples)."""
    pcm: Pcm = (level * np.sin(2 * np.pi * hz * (start + np.arange(samples)) / rate_hz)).astype(
        np.int16
    )
    return pcm


def peak_hz(pcm: Pcm, rate_hz: int) -> float:
    """Returns the strongest frequency."""
    spectrum = np.abs(np.fft.rfft(pcm * np.hanning(len(pcm))))
    return float(spectrum.argmax()) * rate_hz / len(pcm)


def joined(frames: list[AudioFrame]) -> Pcm:
    return np.concatenate([frame.pcm for frame in frames])


def assert_continuous(frames: list[AudioFrame], rate_hz: int) -> None:
    """Asserts that each frame has 20 ms and begins where the previous one ended."""
    assert {len(frame.pcm) for frame in frames} == {rate_hz // 50}
    assert [frame.start for frame in frames] == [i * rate_hz // 50 for i in range(len(frames))]
    assert {frame.rate_hz for frame in frames} == {rate_hz}
