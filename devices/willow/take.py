"""What is said between `start` and `stop` of a call, to the end of its tail."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from devices.willow.ask import Ask

TAIL_MS = 120
"""Audio that still belongs to the words before `stop`: the message overtakes what lies in the
browser's encoder and in our jitter buffer."""

TAIL_TIMEOUT_S = 0.25
"A client that takes its microphone away with `stop` sends less; then nothing more will come."


class Take:
    """Frames in, from a callback; pieces out, until it is closed."""

    def __init__(self, max_audio_s: float) -> None:
        self._max_samples = round(max_audio_s * ASR_RATE_HZ)
        self._waiting: deque[Pcm] = deque()
        self._ready = asyncio.Event()
        self._tail_done = asyncio.Event()
        self._samples = 0
        self._ends_at: int | None = None
        self._is_over = False
        self.is_full = False
        "Something was left out, because of the limit."
        self.ask: Ask | None = None
        "How it shall be recognised; None until `stop` said so."
        self.is_answered = asyncio.Event()
        "It is over, whatever became of it. Answers name no sentence, so they come in order."

    def add(self, frame: AudioFrame) -> None:
        if self._is_over:
            return
        if self._samples + len(frame.pcm) > self._max_samples:
            self.is_full = True
            self._tail_done.set()
            return
        self._waiting.append(frame.pcm)
        self._samples += len(frame.pcm)
        self._ready.set()
        if self._ends_at is not None and self._samples >= self._ends_at:
            self._tail_done.set()

    async def tail(self) -> bool:
        """Wait for it, but not for long; whether it came whole."""
        self._ends_at = self._samples + ASR_RATE_HZ * TAIL_MS // 1000
        try:
            async with asyncio.timeout(TAIL_TIMEOUT_S):
                await self._tail_done.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """`pieces` ends now."""
        self._is_over = True
        self._ready.set()

    async def pieces(self) -> AsyncIterator[Pcm]:
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._is_over:
                return
            self._ready.clear()
            await self._ready.wait()
