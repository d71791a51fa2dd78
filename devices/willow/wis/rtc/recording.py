"""What is said between `start` and `stop` of a call, to the end of its tail."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from devices.willow.wis.asr_params import AsrParams

TAIL_MS = 120
"""Audio that still belongs to the words before `stop`: the message overtakes what lies in the
browser's encoder and in our jitter buffer."""

TAIL_TIMEOUT_S = 0.25
"The tail is not waited for longer than this, however slowly it comes."
TAIL_GAP_S = 0.08
"""Four packets' time: Wi-Fi holds packets back for up to three, or loses them. WIS's browser client
takes its microphone away with `stop`: when no packet has come for so long, nothing more will come,
and the words are recognised at once."""


class RtcRecording:
    """Frames in, from a callback; pieces out, until it is closed."""

    def __init__(self, max_audio_s: float) -> None:
        self._max_samples = round(max_audio_s * ASR_RATE_HZ)
        self._waiting: deque[Pcm] = deque()
        self._ready = asyncio.Event()
        self._news = asyncio.Event()
        "A frame came, or the tail is whole."
        self._is_tail_done = False
        self._samples = 0
        self._ends_at: int | None = None
        self._is_over = False
        self.is_full = False
        "Something was left out, because of the limit."
        self.ask: AsrParams | None = None
        "How it shall be recognised; None until `stop` said so."
        self.is_answered = asyncio.Event()
        "It is over, whatever became of it. Answers name no sentence, so they come in order."

    def add(self, frame: AudioFrame) -> None:
        if self._is_over:
            return
        if self._samples + len(frame.pcm) > self._max_samples:
            self.is_full = True
            self._end_tail()
            return
        self._waiting.append(frame.pcm)
        self._samples += len(frame.pcm)
        self._ready.set()
        self._news.set()
        if self._ends_at is not None and self._samples >= self._ends_at:
            self._end_tail()

    async def tail(self) -> bool:
        """Waits for the tail as long as packets come, but not for long. Returns whether it came
        whole."""
        self._ends_at = self._samples + ASR_RATE_HZ * TAIL_MS // 1000
        try:
            async with asyncio.timeout(TAIL_TIMEOUT_S):
                while not self._is_tail_done:
                    self._news.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(TAIL_GAP_S):
                            await self._news.wait()
                    if not self._news.is_set():  # a loop that stood still has both at once
                        return False
        except TimeoutError:
            return False
        return True

    def _end_tail(self) -> None:
        self._is_tail_done = True
        self._news.set()

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
