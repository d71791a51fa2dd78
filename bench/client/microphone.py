"""What a client says: as from a microphone, a frame per 20 ms whether anybody speaks or not."""

import asyncio
from collections import deque
from collections.abc import Callable

import numpy as np

from core.audio import PTIME_MS, AudioFrame, Pcm, ms_to_samples, silence
from media.pcm import Framer

RATE_HZ = 24_000
"The Realtime API's PCM; over WebRTC Opus carries it as well."

FRAME_SAMPLES = ms_to_samples(PTIME_MS, RATE_HZ)

REMEMBERED_MS = 60_000
"How far back one can ask what was said when: longer than any utterance."

MAX_LIVE_MS = 200
"A sound card that is faster than the clock by more than this loses its oldest audio."


class Microphone:
    """Owner: the task that calls `pull` once per 20 ms; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: deque[tuple[Pcm, asyncio.Event | None]] = deque()
        self._sent: deque[tuple[AudioFrame, float]] = deque(maxlen=REMEMBERED_MS // PTIME_MS)
        self._live = Framer(RATE_HZ)
        self._silence = silence(PTIME_MS, RATE_HZ)
        self.position = 0
        "Samples given away so far: the stream's own time."

    def pull(self) -> AudioFrame:
        """The next 20 ms; silence when nothing waits."""
        pcm, is_said = self._waiting.popleft() if self._waiting else (self._silence, None)
        frame = AudioFrame(pcm, RATE_HZ, self.position)
        self._sent.append((frame, self._clock()))
        self.position += len(pcm)
        if is_said is not None:
            is_said.set()
        return frame

    async def say(self, pcm: Pcm) -> int:
        """Say it in real time; return, when all is sent, the position at which it began."""
        if not len(pcm):
            return self.position
        begin = self.position
        padded = np.concatenate([pcm, np.zeros(-len(pcm) % FRAME_SAMPLES, np.int16)])
        frames = padded.reshape(-1, FRAME_SAMPLES)
        is_said = asyncio.Event()
        self._waiting.extend((frame, None) for frame in frames[:-1])
        self._waiting.append((frames[-1], is_said))
        await is_said.wait()
        return begin

    def feed(self, pcm: Pcm) -> None:
        """What a sound card recorded."""
        for frame in self._live.push(pcm):
            self._waiting.append((frame.pcm, None))
        while len(self._waiting) * PTIME_MS > MAX_LIVE_MS:
            self._waiting.popleft()

    def spoken_at(self, position: int) -> float | None:
        """When the sample at `position` was spoken: a frame is sent when its last sample was."""
        for frame, at in self._sent:
            if frame.start <= position < frame.end:
                return at - (frame.end - position) / RATE_HZ
        return None

    def said(self, begin: int) -> tuple[Pcm, int]:
        """What was sent since position `begin`, as far as it is remembered, and where that is."""
        frames = [frame for frame, _ in self._sent if frame.end > begin]
        if not frames:
            return np.zeros(0, np.int16), self.position
        return np.concatenate([frame.pcm for frame in frames]), frames[0].start
