"""Measures when received audio becomes audible, and where speech begins and ends in a recording."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from core.audio import AudioFrame, Pcm, ms_to_samples
from media.pcm import dbfs

AUDIBLE_LEVEL = 328
"""Least sample value that counts as audible: 1 % of full scale, or -40 dBFS. It is above what Opus
makes of silence, and far below any voice."""

WINDOW_MS = 10
"Length of the windows in which the level is measured."

QUIETER_DB = 30
"Speech lies within this many dB of its loudest 10 ms; the end of a word fades below."

ABOVE_NOISE_DB = 10
"Speech is at least this many dB louder than the quietest tenth of the recording."

SILENT_BELOW_DBFS = -60
"A recording whose loudest 10 ms are below this holds no speech."


def speech_span(pcm: Pcm, rate_hz: int) -> tuple[int, int] | None:
    """Returns (first, one past the last) sample of speech by energy, to 10 ms; None for silence."""
    spans = loud_spans(pcm, rate_hz)
    return (spans[0][0], spans[-1][1]) if spans else None


def loud_spans(pcm: Pcm, rate_hz: int) -> list[tuple[int, int]]:
    """Returns (first, one past the last) sample of each window of 10 ms that is loud enough for
    speech; empty for silence."""
    window = ms_to_samples(WINDOW_MS, rate_hz)
    levels = np.array([dbfs(pcm[at : at + window]) for at in range(0, len(pcm), window)])
    if not len(levels) or levels.max() < SILENT_BELOW_DBFS:
        return []
    loudest = float(levels.max())
    noise = float(np.percentile(levels, 10))
    limit = min(max(loudest - QUIETER_DB, noise + ABOVE_NOISE_DB), loudest)
    starts = [int(index) * window for index in np.flatnonzero(levels >= limit)]
    return [(start, min(start + window, len(pcm))) for start in starts]


class AudioPlayer(Protocol):
    """A loudspeaker."""

    def play(self, frame: AudioFrame) -> None:
        """Queues a frame."""
        ...

    def flush(self) -> None:
        """Drops queued frames."""
        ...


@dataclass(slots=True)
class AudioReceiver:
    """Records the received audio and the times at which it is played.

    Times are in seconds, and those of a player without a buffer, which plays audio at once.
    """

    is_paced: bool
    """True: audio arrives in real time (WebRTC, GPT-Live). False: it arrives faster, and queues
    until it is played."""
    player: AudioPlayer | None = None
    audible_at: float | None = None
    "Time at which the first audible sample since `begin_turn` was played, or will be."
    silent_from: float = 0.0
    "Time at which the last audible sample was played, or will be."
    frames: list[AudioFrame] = field(default_factory=list)
    "All frames since `begin_turn`, including silence."
    _began_at: float = 0.0
    "Time at which playout began after the last gap."
    _played_until: float = 0.0
    "Time at which all received audio is played."

    def begin_turn(self) -> None:
        """Forgets the received audio, because a new turn begins."""
        self.audible_at = None
        self.frames.clear()

    def receive(self, frame: AudioFrame, at: float) -> None:
        """Records a frame. at: its time of arrival."""
        begin = at if self.is_paced else max(at, self._played_until)
        if begin > self._played_until:
            self._began_at = begin
        self._played_until = begin + len(frame.pcm) / frame.rate_hz
        self.frames.append(frame)
        if self.player is not None:
            self.player.play(frame)
        audible = np.flatnonzero(np.abs(frame.pcm.astype(np.int32)) >= AUDIBLE_LEVEL)
        if not len(audible):
            return
        if self.audible_at is None:
            self.audible_at = begin + int(audible[0]) / frame.rate_hz
        self.silent_from = begin + (int(audible[-1]) + 1) / frame.rate_hz

    def interrupt(self, now: float) -> int | None:
        """Stops playing, because the user speaks. Returns how many ms of the audio were played.

        None: nothing was queued, or the server paces the audio and stops it itself.
        """
        if self.is_paced or now >= self._played_until:
            return None
        if self.player is not None:
            self.player.flush()
        self._played_until = now
        self.silent_from = min(self.silent_from, now)
        return max(0, int(1000 * (now - self._began_at)))

    def audible_frames(self) -> list[AudioFrame]:
        """Returns the frames from the first audible to the last."""
        loud = [
            index
            for index, frame in enumerate(self.frames)
            if len(frame.pcm) and np.abs(frame.pcm.astype(np.int32)).max() >= AUDIBLE_LEVEL
        ]
        return self.frames[loud[0] : loud[-1] + 1] if loud else []
