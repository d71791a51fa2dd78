"""A voice in a worker process, used through the interface `Tts`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing

from core.audio import AudioFrame, samples_to_ms
from core.errors import EngineCrashed
from engines.base import TtsInfo, WordMark
from engines.base.listener import SOUND_UNTIL_S
from engines.runtime.worker.payloads import SPEAK, SpeakArguments, SpeechMessage, pcm_from_bytes
from engines.tts.text import check_speed, choose_voice, clauses_of
from serving.workers.engine_process import EngineProcess


class ProcessTts:
    """A `Tts` whose clauses are synthesised by a worker process.

    Each clause is a call of its own. A session that reads slowly delays only its own next clause,
    so at most one clause of each session waits in this process.
    """

    def __init__(
        self, process: EngineProcess[TtsInfo], info: TtsInfo, *, waits: bool = True
    ) -> None:
        """`process`: the worker, which must be running. `info`: what it reported. `waits`: True to
        wait for a process that is being restarted, False to fail at once because another voice can
        speak meanwhile."""
        self.info = info
        self._process, self._waits = process, waits

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """Streams the speech (see `Tts.speak`).

        Raises RequestError for an unknown language, voice or speed; PayloadTooLarge for a chunk
        beyond MAX_CHUNK_CHARS; EngineError, such as EngineCrashed when the process dies.
        """
        chosen, factor = choose_voice(self.info, language, voice), check_speed(speed)
        start = chunk_index = 0
        async for chunk in text:
            for begin, clause in clauses_of(chunk):
                if not (self._waits or self._process.is_ready):
                    raise EngineCrashed("tts", self.info.name, "its process is being restarted")
                arguments = SpeakArguments(
                    clause, language, chosen, factor, on_word is not None, _ahead_ms()
                )
                base_ms = samples_to_ms(start, self.info.rate_hz)
                parts = self._process.stream(SPEAK, arguments, SpeechMessage)
                async with aclosing(parts):
                    async for part in parts:
                        for word in part.words if on_word is not None else ():
                            assert on_word is not None
                            on_word(_moved(word, chunk_index, begin, base_ms))
                        if part.pcm:
                            pcm = pcm_from_bytes(part.pcm)
                            yield AudioFrame(pcm, self.info.rate_hz, start)
                            start += len(pcm)
            chunk_index += 1


def _ahead_ms() -> float:
    """Returns how much sound the listener of the current speech still has to hear."""
    now_s = asyncio.get_running_loop().time()
    return 1000 * (SOUND_UNTIL_S.get(now_s) - now_s)


def _moved(word: WordMark, chunk: int, begin: int, base_ms: float) -> WordMark:
    """Returns a word of a clause as a word of the whole speech. `begin`: position of the clause in
    its chunk, in characters. `base_ms`: start of the clause."""
    return WordMark(chunk, begin + word.end_char, base_ms + word.start_ms, base_ms + word.end_ms)
