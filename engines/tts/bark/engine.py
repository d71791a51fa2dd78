"""Voices of Bark. They run in a worker process."""

import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from typing import Any

import numpy as np

from core.audio import AudioFrame
from core.errors import RequestError
from engines.base import TtsInfo, WordMark
from engines.base.codec import Samples
from engines.base.voice import StageTime
from engines.tts.bark.settings import NAME
from engines.tts.bark.stages import BarkStages
from engines.tts.bark.voices import SpeakerPrompt
from engines.tts.shared.text import UNSPEAKABLE, check_speed, choose_voice, clauses_of

MAX_CLAUSE_CHARS = 150
"""Longest text of one clause. Its 768 semantic tokens are 15 s, in which a slow speaker says 150
letters."""


class BarkTts:
    """A `Tts` and a `StagedTts`. Its stages compute in threads, so the event loop stays free."""

    def __init__(
        self,
        info: TtsInfo,
        stages: BarkStages,
        tokenizer: Any,
        prompts: Mapping[str, SpeakerPrompt],
        stage_times: list[StageTime],
    ) -> None:
        """`prompts`: speaker prompts by name. `stage_times`: what the pools have reported."""
        self.info = info
        self._stages, self._tokenizer, self._prompts = stages, tokenizer, prompts
        self._stage_times = stage_times

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """Streams the speech, a clause at a time (see `Tts.speak`). The model has one speed, so
        `speed` is only checked, and it gives no times of words.

        Raises RequestError for an unknown language, voice or speed, and UNSPEAKABLE for a clause
        with too many tokens; PayloadTooLarge for a chunk beyond MAX_CHUNK_CHARS; EngineError.
        """
        check_speed(speed)
        chosen, start = choose_voice(self.info, language, voice), 0
        async for chunk in text:
            for _, clause in clauses_of(chunk, max_clause_chars=MAX_CLAUSE_CHARS):
                sound = await self.sound(clause, chosen)
                pcm = np.clip(sound * 32_767, -32_768, 32_767).astype(np.int16)
                if len(pcm):
                    yield AudioFrame(pcm, self.info.rate_hz, start)
                    start += len(pcm)

    async def sound(self, clause: str, voice: str) -> Samples:
        """Returns the sound of one clause. The same clause is spoken in the same way every time."""
        ids = self._tokenizer.encode(clause, add_special_tokens=False).ids
        if len(ids) > (most := self._stages.layout.text_ids):
            why = f"a clause of {len(ids)} tokens; allowed: up to {most}"
            raise RequestError(f"{NAME}: {why}", code=UNSPEAKABLE)
        seed = zlib.crc32(f"{voice} {clause}".encode())
        return await self._stages.sound(ids, self._prompts.get(voice), seed=seed)

    def take_stage_times(self) -> list[StageTime]:
        """Returns the times of the stages since the last call (see `StagedTts`)."""
        taken = self._stage_times.copy()
        self._stage_times.clear()
        return taken

    async def aclose(self) -> None:
        """Ends the threads."""
        await self._stages.aclose()
