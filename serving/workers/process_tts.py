"""A voice in a worker process or on the cluster, used through the interface `Tts`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from core.audio import AudioFrame, Pcm, samples_to_ms
from core.errors import EngineCrashed, EngineError, RequestError
from core.ports import Metrics
from engines.base import TtsInfo, WordMark
from engines.base.voice import SOUND_UNTIL_S, StageTime
from engines.runtime.worker.payloads import (
    CONDITION,
    FORGET_VOICE,
    SPEAK,
    SpeakArguments,
    SpeechMessage,
    VoiceMessage,
    pcm_from_bytes,
    pcm_to_bytes,
)
from engines.tts.shared.text import UNKNOWN_VOICE, check_speed, choose_voice, clauses_of
from serving.workers.engine_process import StreamEngine


class ProcessTts:
    """A `Tts` whose clauses are synthesised by a worker process.

    Each clause is a call of its own. A session that reads slowly delays only its own next clause,
    so at most one clause of each session waits in this process.
    """

    def __init__(
        self,
        process: StreamEngine[TtsInfo],
        info: TtsInfo,
        metrics: Metrics,
        *,
        waits: bool = True,
    ) -> None:
        """`process`: the worker, which must be running. `info`: what it reported. `waits`: True to
        wait for a process that is being restarted, False to fail at once because another voice can
        speak meanwhile."""
        self.info = info
        self._process, self._metrics, self._waits = process, metrics, waits

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
                arguments = SpeakArguments(
                    clause, language, chosen, factor, on_word is not None, _ahead_ms()
                )
                base_ms = samples_to_ms(start, self.info.rate_hz)
                async with aclosing(self._parts(arguments)) as parts:
                    async for part in parts:
                        for word in part.words if on_word is not None else ():
                            assert on_word is not None
                            on_word(_moved(word, chunk_index, begin, base_ms))
                        if part.pcm:
                            pcm = pcm_from_bytes(part.pcm)
                            yield AudioFrame(pcm, self.info.rate_hz, start)
                            start += len(pcm)
            chunk_index += 1

    async def speak_clause(
        self,
        clause: str,
        *,
        language: str,
        voice: str,
        condition: Callable[[], Awaitable[bytes]],
        speed: float = 1,
    ) -> AsyncGenerator[AudioFrame, None]:
        """Streams one clause in a voice that was made of a recording.

        `voice`: a name that no other voice ever has. `condition`: reads the voice's condition. It
        is only called when the worker does not hold the voice. Raises EngineError, RequestError,
        and the errors of `condition`.
        """
        arguments = SpeakArguments(clause, language, voice, check_speed(speed), False, _ahead_ms())
        start = 0
        try:
            async with aclosing(self._frames(arguments)) as frames:
                async for frame in frames:
                    yield frame
                    start = frame.end
            return
        except RequestError as error:
            if error.code != UNKNOWN_VOICE or start:
                raise
        arguments = replace(arguments, condition=await condition())
        async with aclosing(self._frames(arguments)) as frames:
            async for frame in frames:
                yield frame

    async def voice_condition(self, pcm: Pcm) -> bytes:
        """Returns the condition of the voice in a recording (see `CloningTts`)."""
        parts = self._process.stream(CONDITION, pcm_to_bytes(pcm), VoiceMessage)
        async with aclosing(parts):
            async for part in parts:
                return part.condition
        raise EngineError("tts", self.info.name, "it made no voice of the recording")

    def forget_voice(self, voice: str) -> None:
        """Drops a voice that was made of a recording from the worker's memory. A worker that is
        down holds none."""
        self._process.notify(FORGET_VOICE, voice)

    async def _frames(self, arguments: SpeakArguments) -> AsyncGenerator[AudioFrame, None]:
        start = 0
        async with aclosing(self._parts(arguments)) as parts:
            async for part in parts:
                pcm = pcm_from_bytes(part.pcm)
                yield AudioFrame(pcm, self.info.rate_hz, start)
                start += len(pcm)

    async def _parts(self, arguments: SpeakArguments) -> AsyncGenerator[SpeechMessage, None]:
        if not (self._waits or self._process.is_ready):
            raise EngineCrashed("tts", self.info.name, "its process is being restarted")
        async with aclosing(self._process.stream(SPEAK, arguments, SpeechMessage)) as parts:
            async for part in parts:
                self._observe(part.stages)
                yield part

    def _observe(self, stages: Sequence[StageTime]) -> None:
        for one in stages:
            for name, value in (
                ("earshot_tts_stage_queue_seconds", one.queue_s),
                ("earshot_tts_stage_compute_seconds", one.compute_s),
                ("earshot_tts_stage_batch_size", one.batch),
            ):
                self._metrics.observe(name, value, stage=one.stage)


def _ahead_ms() -> float:
    """Returns how much sound the listener of the current speech still has to hear."""
    now_s = asyncio.get_running_loop().time()
    return 1000 * (SOUND_UNTIL_S.get(now_s) - now_s)


def _moved(word: WordMark, chunk: int, begin: int, base_ms: float) -> WordMark:
    """Returns a word of a clause as a word of the whole speech. `begin`: position of the clause in
    its chunk, in characters. `base_ms`: start of the clause."""
    return WordMark(chunk, begin + word.end_char, base_ms + word.start_ms, base_ms + word.end_ms)
