"""An engine that makes voices of recordings, in this process: it stands for `ProcessTts`."""

import io
import wave
from collections.abc import AsyncGenerator, Awaitable, Callable

import numpy as np

from core.audio import AudioFrame, Pcm
from engines.base import TtsInfo
from tests.speech import say

RATE_HZ = 24_000
TEXT = "Good morning, this is my own voice. It will read the news to me, and tell me the weather."


class CloningVoice:
    """Speaks 100 ms per clause at the level that the condition says."""

    info = TtsInfo("fake", RATE_HZ, {"en": ("stock",), "de": ()}, can_clone=True)

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.languages: list[str] = []

    async def voice_condition(self, pcm: Pcm) -> bytes:
        """Returns the number of samples as text."""
        return str(len(pcm)).encode()

    async def speak_clause(
        self,
        clause: str,
        *,
        language: str,
        voice: str,
        condition: Callable[[], Awaitable[bytes]],
        speed: float = 1,
    ) -> AsyncGenerator[AudioFrame, None]:
        self.languages.append(language)
        if voice not in self.held:
            self.held[voice] = await condition()
        level = int(self.held[voice]) % 30_000
        yield AudioFrame(np.full(RATE_HZ // 10, level, np.int16), RATE_HZ, 0)

    def forget_voice(self, voice: str) -> None:
        self.held.pop(voice, None)


def wav(pcm: Pcm) -> bytes:
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        file.writeframes(pcm.tobytes())
    return data.getvalue()


def recording() -> bytes:
    return wav(say(TEXT, rate_hz=RATE_HZ, lead_ms=100, tail_ms=100))
