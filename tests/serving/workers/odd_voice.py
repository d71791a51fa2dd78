"""A third party's voice for tests. The text selects its behaviour; each word takes 100 ms."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable

import numpy as np
from msgspec import Struct

from core.audio import AudioFrame, Pcm
from core.errors import ConfigError, OverloadedError, RequestError
from engines.base import TtsInfo, WordMark, WorkerProfile
from engines.base.voice import SOUND_UNTIL_S, StageTime

RATE_HZ = 16_000
WORD_SAMPLES = RATE_HZ // 10
SENTENCE = "Turn on the light"


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    has_files: bool = True
    patience_s: float = 30.0


class OddVoice:
    def __init__(self) -> None:
        voices = {"en": ("ann", "bob")}
        self.info = TtsInfo("odd", RATE_HZ, voices, has_word_times=True, can_clone=True)
        self._cancelled = 0
        self._held = dict[str, bytes]()
        self._stage_times: list[StageTime] = []

    def take_stage_times(self) -> list[StageTime]:
        taken, self._stage_times = self._stage_times, []
        return taken

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        condition = None if voice in (None, "ann", "bob") else self._held.get(voice or "")
        if voice not in (None, "ann", "bob") and condition is None:
            raise RequestError(f"no voice {voice}", code="unknown_voice")
        async for chunk in text:
            match chunk:
                case "whose voice" if condition is not None:
                    yield _frame(int(condition), 0)
                case "how many voices":
                    yield _frame(len(self._held), 0)
                case "endless":
                    try:
                        yield _frame(1, 0)
                        await asyncio.Event().wait()
                    finally:
                        self._cancelled += 1
                case "how many were cancelled":
                    yield _frame(self._cancelled, 0)
                case "how many ms of sound are ahead":
                    ahead_s = SOUND_UNTIL_S.get() - asyncio.get_running_loop().time()
                    yield _frame(round(1000 * ahead_s), 0)
                case "staged":
                    self._stage_times.append(StageTime("coarse", 0.1, 0.2, 1.5))
                    yield _frame(1, 0)
                case "long":
                    yield AudioFrame(np.zeros(3 * RATE_HZ, np.int16), RATE_HZ, 0)
                case "hang":
                    _hang()
                case "fail":
                    raise ZeroDivisionError("the library quotes the text")
                case "full":
                    raise OverloadedError("no room", retry_after_s=7, code="engine_busy")
                case _:
                    start = end = 0
                    for word in chunk.split():
                        end = chunk.index(word, end) + len(word)
                        if on_word is not None:
                            ms = start * 1000 / RATE_HZ
                            on_word(WordMark(0, end, ms, ms + 100))
                        yield _frame(len(word), start)
                        start += WORD_SAMPLES

    async def voice_condition(self, pcm: Pcm) -> bytes:
        """Makes the condition of the loudest sample."""
        return str(int(pcm.max())).encode()

    def hold_voice(self, voice: str, condition: bytes) -> None:
        self._held[voice] = condition

    def forget_voice(self, voice: str) -> None:
        self._held.pop(voice, None)


def _hang() -> None:
    """Blocks the event loop of the process."""
    time.sleep(60)


def _frame(value: int, start: int) -> AudioFrame:
    return AudioFrame(np.full(WORD_SAMPLES, value, np.int16), RATE_HZ, start)


def worker_profile(settings: Settings) -> WorkerProfile:
    limit_s = settings.patience_s
    return WorkerProfile(first_chunk_timeout_s=limit_s, chunk_timeout_s=limit_s)


def create(settings: Settings) -> OddVoice:
    if not settings.has_files:
        raise ConfigError("tts.odd: two voices, two rates")
    return OddVoice()
