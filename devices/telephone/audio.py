"""Sound of a call: 8 kHz on the line, 16 kHz for the session and 24 kHz from its playout."""

import numpy as np

from core.audio import ASR_RATE_HZ, PTIME_MS, AudioFrame, Pcm
from media.pcm import Framer
from media.resample import Resampler
from pipeline.playout.playout import PACED_RATE_HZ
from pipeline.session.session import Session

LINE_RATE_HZ = 8_000
"Rate of telephone networks."

FRAME_SAMPLES = LINE_RATE_HZ * PTIME_MS // 1000
"Samples of 20 ms on the line."

SILENCE = np.zeros(FRAME_SAMPLES, np.int16)

_PLAYOUT_SILENCE = np.zeros(PACED_RATE_HZ * PTIME_MS // 1000, np.int16)


class LineInput:
    """Turns the caller's sound into frames for the session."""

    def __init__(self) -> None:
        self._resampler = Resampler(LINE_RATE_HZ, ASR_RATE_HZ, live=True)
        self._framer = Framer(ASR_RATE_HZ)

    def convert(self, pcm: Pcm) -> list[AudioFrame]:
        """Returns the frames that this sound completes."""
        return self._framer.push(self._resampler.push(pcm)) if len(pcm) else []


class LineOutput:
    """Turns the session's playout into frames of 20 ms for the line."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._resampler = Resampler(PACED_RATE_HZ, LINE_RATE_HZ, live=True)

    def frame(self) -> Pcm | None:
        """Returns the next frame; None: there is nothing to play."""
        frame = self._session.pull()
        return None if frame is None else self._resampler.push(frame.pcm)

    def drop(self) -> None:
        """Drops what the resampler still holds of an answer that was cut off."""
        self._resampler.push(_PLAYOUT_SILENCE)
