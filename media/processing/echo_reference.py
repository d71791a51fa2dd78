"""What the speaker was given, laid out on the session's own time: 16 kHz samples of its microphone.

Frames are placed one behind the other, not where the clock happened to stand: the device plays them
so, and the network's jitter is in the clock, not in the sound.
"""

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from media.resample import Resampler

ECHO_TAIL = ms_to_samples(700, ASR_RATE_HZ)
"An answer is in the room for so long: 400 ms of delay and 300 ms of reverberation."
NEW_STRETCH = ms_to_samples(200, ASR_RATE_HZ)
"A frame this late begins anew: pacing never lags so much, and a device's buffer has run dry."
DRIFT = ms_to_samples(20, ASR_RATE_HZ)
"A stretch that is off by more, frame for frame for a second, is moved: the clocks have drifted."
DRIFT_FRAMES = 50
KEPT = ms_to_samples(4000, ASR_RATE_HZ)
"Of the past: the longest delay that is looked for, and what is compared with it."
MAX_AHEAD = ms_to_samples(60_000, ASR_RATE_HZ)
"Of the future, for a client that is given its sound at once. What is beyond is not remembered."

_EMPTY: Pcm = np.zeros(0, np.int16)


class EchoReference:
    """Positions count the session's microphone samples. Memory: the past kept and what is ahead."""

    def __init__(self, rate_hz: int, *, is_paced: bool) -> None:
        """`is_paced`: frames come when they are played, so a growing lead is drift."""
        self._resampler = Resampler(rate_hz, ASR_RATE_HZ, live=True)
        self._is_paced = is_paced
        self._pcm = _EMPTY
        "Room for samples; the first `_end - _base` are in use."
        self._base = self._end = 0
        "Positions of the first sample kept, and one past the last."
        self._sounds: list[tuple[int, int]] = []
        "Stretches that are not silent, as [start, end), oldest first."
        self._offs: list[int] = []

    def write(self, pcm: Pcm, at: int) -> None:
        """Sound that was sent at position `at`, or is to be played after all that was sent."""
        pcm = self._resampler.push(pcm)
        if not len(pcm):
            return
        start = self._placed(at)
        if start + len(pcm) - at > MAX_AHEAD:
            return
        self._make_room(start, len(pcm), at)
        self._pcm[start - self._base : start - self._base + len(pcm)] = pcm
        self._end = start + len(pcm)
        if pcm.any():
            self._sounding(start)

    def cut(self, at: int) -> None:
        """What lies behind `at` is not going to be played."""
        self._end = max(self._base, min(self._end, at))
        self._sounds = [(start, min(end, at)) for start, end in self._sounds if start < at]

    def read(self, start: int, end: int) -> Pcm:
        """Samples [start, end); silence where nothing was played or is not kept any more."""
        wanted = np.zeros(end - start, np.int16)
        first, last = max(start, self._base), min(end, self._end)
        if first < last:
            wanted[first - start : last - start] = self._pcm[first - self._base : last - self._base]
        return wanted

    def sounds(self, start: int, end: int) -> bool:
        """Whether anything but silence was played in [start, end)."""
        return any(first < end and start < last for first, last in self._sounds)

    def _placed(self, at: int) -> int:
        off = at - self._end
        if off >= NEW_STRETCH or (self._end == 0 and self._base == 0):
            self._offs.clear()
            return at
        self._offs.append(off)
        if len(self._offs) < DRIFT_FRAMES:
            return self._end
        least, most = min(self._offs), max(self._offs)
        self._offs.clear()
        if least > DRIFT:
            return self._end + least
        if self._is_paced and most < -DRIFT:
            return max(self._base, self._end + most)
        return self._end

    def _make_room(self, start: int, size: int, now: int) -> None:
        """So that [start, start + size) fits and what is skipped is silent."""
        oldest = max(self._base, min(now, start) - KEPT)
        if self._end <= oldest:
            self._base = self._end = max(oldest, start)
        needed = start + size - self._base
        if needed > len(self._pcm):
            kept = self.read(oldest, self._end)
            room = np.zeros(2 * max(KEPT, start + size - oldest), np.int16)
            room[: len(kept)] = kept
            self._pcm, self._base = room, oldest
        self._pcm[max(0, self._end - self._base) : max(0, start - self._base)] = 0
        self._sounds = [one for one in self._sounds if one[1] > oldest]

    def _sounding(self, start: int) -> None:
        if self._sounds and start - self._sounds[-1][1] < NEW_STRETCH:
            start = self._sounds.pop()[0]
        self._sounds.append((start, self._end))
