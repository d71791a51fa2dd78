"""Audio between `start` and `stop` of a call, and the tail after `stop`."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from devices.willow.wis.asr_params import AsrParams

TAIL_MS = 120
"""Audio after `stop` that still belongs to the words before it. The message overtakes the audio in
the browser's encoder and in our jitter buffer."""

TAIL_TIMEOUT_S = 0.25
"Longest wait for the tail, however slowly it arrives."
TAIL_GAP_S = 0.08
"""Pause after which the tail counts as over: the time of four packets. Wi-Fi delays packets by up
to three packet times, or loses them. WIS's browser client switches its microphone off with `stop`,
so after this pause no more packets come."""


class RtcRecording:
    """Buffer of one recording. A callback adds frames; `pieces` yields them until it is closed."""

    def __init__(self, max_audio_s: float) -> None:
        self._max_samples = round(max_audio_s * ASR_RATE_HZ)
        self._waiting: deque[Pcm] = deque()
        self._ready = asyncio.Event()
        self._tail_changed = asyncio.Event()
        "Set when a frame came, or the tail is complete."
        self._is_tail_done = False
        self._samples = 0
        self._ends_at: int | None = None
        "Number of samples with which the tail is complete; None before `stop`."
        self._is_over = False
        self.is_full = False
        "Audio beyond the limit was left out."
        self.params: AsrParams | None = None
        "Parameters of the recognition; None until `stop` brings them."
        self.is_answered = asyncio.Event()
        """Set when the result, or an error, was sent. Results do not say which recording they
        belong to, so they must be sent in order."""

    def add(self, frame: AudioFrame) -> None:
        """Adds a frame; audio beyond the limit is dropped."""
        if self._is_over:
            return
        if self._samples + len(frame.pcm) > self._max_samples:
            self.is_full = True
            self._end_tail()
            return
        self._waiting.append(frame.pcm)
        self._samples += len(frame.pcm)
        self._ready.set()
        self._tail_changed.set()
        if self._ends_at is not None and self._samples >= self._ends_at:
            self._end_tail()

    async def tail(self) -> bool:
        """Waits for the tail while packets arrive, but not for long. Returns True if it came
        completely."""
        self._ends_at = self._samples + ASR_RATE_HZ * TAIL_MS // 1000
        try:
            async with asyncio.timeout(TAIL_TIMEOUT_S):
                while not self._is_tail_done:
                    self._tail_changed.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(TAIL_GAP_S):
                            await self._tail_changed.wait()
                    # checked here, since after a stall of the event loop both the timeout and a
                    # frame are there
                    if not self._tail_changed.is_set():
                        return False
        except TimeoutError:
            return False
        return True

    def _end_tail(self) -> None:
        self._is_tail_done = True
        self._tail_changed.set()

    def close(self) -> None:
        """Ends the recording: `pieces` stops after the audio that is there."""
        self._is_over = True
        self._ready.set()

    async def pieces(self) -> AsyncIterator[Pcm]:
        """Yields the audio as it arrives."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._is_over:
                return
            self._ready.clear()
            await self._ready.wait()
