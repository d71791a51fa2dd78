"""Microphone of a client: delivers a frame per 20 ms, with speech or silence."""

import asyncio
from collections import deque
from collections.abc import Callable

import numpy as np

from core.audio import PTIME_MS, AudioFrame, Pcm, ms_to_samples, silence
from media.pcm import Framer

RATE_HZ = 24_000
"Sample rate of the Realtime API's PCM. WebRTC clients use it too."

FRAME_SAMPLES = ms_to_samples(PTIME_MS, RATE_HZ)
"Samples of a frame of 20 ms."

HISTORY_MS = 60_000
"Length of the sent audio that is remembered with its times: longer than any utterance."

MAX_LIVE_MS = 200
"""Longest queue of live audio. A sound card that is faster than the clock would fill it more and
more, so the oldest audio is dropped."""


class Microphone:
    """Queues audio and delivers it frame by frame to one task, which calls `pull` once per 20 ms.

    clock: returns seconds. rate_hz: sample rate of all audio.
    """

    def __init__(self, clock: Callable[[], float], rate_hz: int = RATE_HZ) -> None:
        self._clock, self._rate_hz = clock, rate_hz
        self._frame_samples = ms_to_samples(PTIME_MS, rate_hz)
        self._queued: deque[tuple[Pcm, asyncio.Event | None]] = deque()
        self._sent: deque[tuple[AudioFrame, float]] = deque(maxlen=HISTORY_MS // PTIME_MS)
        self._framer = Framer(rate_hz)
        self._silence = silence(PTIME_MS, rate_hz)
        self.position = 0
        "Number of samples that were sent: the stream's own time."

    def pull(self) -> AudioFrame:
        """Returns the next 20 ms; silence when nothing is queued."""
        pcm, is_sent = self._queued.popleft() if self._queued else (self._silence, None)
        frame = AudioFrame(pcm, self._rate_hz, self.position)
        self._sent.append((frame, self._clock()))
        self.position += len(pcm)
        if is_sent is not None:
            is_sent.set()
        return frame

    async def say(self, pcm: Pcm) -> int:
        """Sends samples at its rate in real time, and waits until all are sent.

        Returns the position of the first one.
        """
        if not len(pcm):
            return self.position
        begin = self.position
        padded = np.concatenate([pcm, np.zeros(-len(pcm) % self._frame_samples, np.int16)])
        frames = padded.reshape(-1, self._frame_samples)
        is_sent = asyncio.Event()
        self._queued.extend((frame, None) for frame in frames[:-1])
        self._queued.append((frames[-1], is_sent))
        await is_sent.wait()
        return begin

    def feed(self, pcm: Pcm) -> None:
        """Queues audio that a sound card recorded, at its rate."""
        for frame in self._framer.push(pcm):
            self._queued.append((frame.pcm, None))
        while len(self._queued) * PTIME_MS > MAX_LIVE_MS:
            self._queued.popleft()

    def spoken_at(self, position: int) -> float | None:
        """Returns the time at which the sample at `position` was spoken; None if forgotten."""
        # A real microphone delivers a frame when its last sample was spoken.
        for frame, at in self._sent:
            if frame.start <= position < frame.end:
                return at - (frame.end - position) / self._rate_hz
        return None

    def sent_since(self, begin: int) -> tuple[Pcm, int]:
        """Returns (audio sent since position `begin`, its position).

        Audio that is forgotten is left out at the beginning.
        """
        frames = [frame for frame, _ in self._sent if frame.end > begin]
        if not frames:
            return np.zeros(0, np.int16), self.position
        return np.concatenate([frame.pcm for frame in frames]), frames[0].start
