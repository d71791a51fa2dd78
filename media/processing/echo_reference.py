"""Reference signal of the echo canceller: the audio that was sent to the speaker, placed on the
time of the microphone's 16 kHz samples.

Frames are placed one after the other, not at the clock's position when they are sent. The device
plays them without gaps, and the network's jitter affects the clock, not the sound.
"""

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from media.resample import Resampler

ECHO_TAIL_SAMPLES = ms_to_samples(700, ASR_RATE_HZ)
"""Samples for which an answer remains audible in the room: 400 ms of delay and 300 ms of
reverberation."""
NEW_STRETCH_SAMPLES = ms_to_samples(200, ASR_RATE_HZ)
"""A frame that is late by this many samples begins a new stretch. Pacing never lags that much, so
the device's buffer has run empty."""
DRIFT_SAMPLES = ms_to_samples(20, ASR_RATE_HZ)
"""Offset in samples above which a stretch is moved, if every frame of a second is off by more: the
clocks have drifted apart."""
DRIFT_FRAMES = 50
"Number of frames over which drift is judged."
KEPT_SAMPLES = ms_to_samples(4000, ASR_RATE_HZ)
"""Samples of the past that are kept: the longest delay that is searched, and the audio that is
compared."""
MAX_AHEAD_SAMPLES = ms_to_samples(60_000, ASR_RATE_HZ)
"""Samples of the future that are kept, for a client that gets its audio at once. Audio beyond that
is ignored."""

_EMPTY: Pcm = np.zeros(0, np.int16)


class EchoReference:
    """Reference signal of one session. Positions count the session's microphone samples. It keeps
    the recent past and the audio that is still to be played."""

    def __init__(self, rate_hz: int, *, is_paced: bool) -> None:
        """Creates an empty reference. `rate_hz`: rate of the audio that is played. `is_paced`:
        frames are sent when they are played, so a growing lead means drift."""
        self._resampler = Resampler(rate_hz, ASR_RATE_HZ, live=True)
        self._is_paced = is_paced
        self._pcm = _EMPTY
        "Memory for samples; the first `_end - _base` are in use."
        self._base = self._end = 0
        "Positions of the first sample that is kept, and one after the last."
        self._sounds: list[tuple[int, int]] = []
        "Stretches that are not silent, as [start, end), oldest first."
        self._offsets: list[int] = []
        "Offsets of the recent frames from the positions at which they were placed."

    def write(self, pcm: Pcm, position: int) -> None:
        """Adds audio that is sent at `position`; it is played after all that was sent before.
        `pcm`: int16, mono, at `rate_hz`."""
        pcm = self._resampler.push(pcm)
        if not len(pcm):
            return
        start = self._next_start(position)
        if start + len(pcm) - position > MAX_AHEAD_SAMPLES:
            return
        self._make_room(start, len(pcm), position)
        self._pcm[start - self._base : start - self._base + len(pcm)] = pcm
        self._end = start + len(pcm)
        if pcm.any():
            self._add_sound(start)

    def cut(self, position: int) -> None:
        """Drops the audio after `position`, which will not be played."""
        self._end = max(self._base, min(self._end, position))
        self._sounds = [
            (start, min(end, position)) for start, end in self._sounds if start < position
        ]

    def read(self, start: int, end: int) -> Pcm:
        """Returns the samples [start, end); silence where nothing was played, or is not kept any
        more."""
        wanted = np.zeros(end - start, np.int16)
        first, last = max(start, self._base), min(end, self._end)
        if first < last:
            wanted[first - start : last - start] = self._pcm[first - self._base : last - self._base]
        return wanted

    def sounds(self, start: int, end: int) -> bool:
        """True if anything but silence was played in [start, end)."""
        return any(first < end and start < last for first, last in self._sounds)

    def _next_start(self, position: int) -> int:
        """Returns the position at which the next frame is placed."""
        offset = position - self._end
        if offset >= NEW_STRETCH_SAMPLES or (self._end == 0 and self._base == 0):
            self._offsets.clear()
            return position
        self._offsets.append(offset)
        if len(self._offsets) < DRIFT_FRAMES:
            return self._end
        least, most = min(self._offsets), max(self._offsets)
        self._offsets.clear()
        # Drift only if every frame was off to the same side; jitter is off to both.
        if least > DRIFT_SAMPLES:
            return self._end + least
        if self._is_paced and most < -DRIFT_SAMPLES:
            return max(self._base, self._end + most)
        return self._end

    def _make_room(self, start: int, size: int, now: int) -> None:
        """Makes room for [start, start + size), and fills a skipped part with silence. `now`:
        present position."""
        oldest = max(self._base, min(now, start) - KEPT_SAMPLES)
        if self._end <= oldest:
            self._base = self._end = max(oldest, start)
        needed = start + size - self._base
        if needed > len(self._pcm):
            kept = self.read(oldest, self._end)
            room = np.zeros(2 * max(KEPT_SAMPLES, start + size - oldest), np.int16)
            room[: len(kept)] = kept
            self._pcm, self._base = room, oldest
        self._pcm[max(0, self._end - self._base) : max(0, start - self._base)] = 0
        self._sounds = [span for span in self._sounds if span[1] > oldest]

    def _add_sound(self, start: int) -> None:
        """Notes that the audio from `start` to the end is not silent. Short pauses do not end a
        stretch."""
        if self._sounds and start - self._sounds[-1][1] < NEW_STRETCH_SAMPLES:
            start = self._sounds.pop()[0]
        self._sounds.append((start, self._end))
