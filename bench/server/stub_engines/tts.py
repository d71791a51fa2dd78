"""Voice whose first audio takes a fixed time. It is a tone, loud from its first sample."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from core.audio import PTIME_MS, AudioFrame, Pcm, ms_to_samples
from engines.base import TtsInfo, WordMark

RATE_HZ = 24_000
"Sample rate of the voice."

TONE_HZ = 500
"Frequency of the tone that stands for speech."

LEVEL = 8000
"Amplitude of the tone; full scale is 32767."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    delay_ms: Annotated[float, Meta(ge=0, le=10_000)] = 0
    "Time from the first text to the first audio."
    tone_ms: Annotated[int, Meta(ge=20, le=60_000)] = 400
    "Length of the tone for each piece of text."


class StubTts:
    """A `Tts` that plays one tone for each piece of text."""

    info = TtsInfo("stub", RATE_HZ, {"en": ("stub",)})

    def __init__(self, settings: Settings) -> None:
        self._delay_s = settings.delay_ms / 1000
        self._tone = tone(settings.tone_ms)

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """See `Tts.speak`."""
        start, size = 0, ms_to_samples(PTIME_MS, RATE_HZ)
        async for _ in text:
            if start == 0:
                await asyncio.sleep(self._delay_s)
            for offset in range(0, len(self._tone), size):
                frame = AudioFrame(self._tone[offset : offset + size], RATE_HZ, start)
                start = frame.end
                yield frame


def create(settings: Settings) -> StubTts:
    return StubTts(settings)


def tone(length_ms: float) -> Pcm:
    """Returns a cosine at RATE_HZ. It begins at its loudest, so its first sample is audible."""
    time_s = np.arange(ms_to_samples(length_ms, RATE_HZ)) / RATE_HZ
    return (LEVEL * np.cos(2 * np.pi * TONE_HZ * time_s)).astype(np.int16)
