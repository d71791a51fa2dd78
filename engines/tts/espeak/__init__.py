"""Engine for eSpeak NG in the gateway process: all its languages, first audio within milliseconds.

Only this engine uses eSpeak's GPL-3 code. Synthesis runs some thousand times faster than speech, so
one thread serves all sessions: each clause is one job, and sessions take turns after each clause.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from typing import Annotated

from msgspec import Meta, Struct

from core.audio import AudioFrame, Pcm
from core.errors import RequestError
from engines.base import TtsInfo, WordMark
from engines.tts.espeak.library import (
    NORMAL_WORDS_PER_MINUTE,
    EspeakLibrary,
    espeak_library,
)
from engines.tts.espeak.word_times import ClauseWords, EspeakEvent
from engines.tts.shared.synthesis_thread import ClauseReceiver, SpeechChunk, ThreadedSynthesis
from engines.tts.shared.text import check_speed, language_voices

REQUIRES = {"espeakng_loader": "espeakng-loader"}

LOUDNESS_LUFS = -21.0
"Loudness of English, German, French and Spanish: -20.2 to -22.3."

_WORDS_PER_MINUTE = (80, 450)
"Limits of the library."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `espeak`."""

    speed: Annotated[float, Meta(ge=0.5, le=2.5)] = 1.0
    "Factor on the speed of every request; 1 is 175 words per minute."


class EspeakTts:
    """A `Tts` with eSpeak NG's voices."""

    def __init__(self, info: TtsInfo, library: EspeakLibrary, settings: Settings) -> None:
        self.info = info
        self._library = library
        self._settings = settings
        self._synthesis = ThreadedSynthesis(info)

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
        beyond MAX_CHUNK_CHARS; EngineError.
        """
        name = self._voice(language, voice)
        words_per_minute = self._words_per_minute(speed)

        def plain(clause: str, receiver: ClauseReceiver) -> None:
            def sink(pcm: Pcm) -> bool:
                return receiver.put(SpeechChunk(pcm))

            self._library.synthesise(clause, name, words_per_minute, sink)

        def timed(clause: str, receiver: ClauseReceiver) -> None:
            self._synthesise_timed(clause, name, words_per_minute, receiver)

        frames = self._synthesis.speak(text, plain if on_word is None else timed, on_word)
        async with aclosing(frames):
            async for frame in frames:
                yield frame

    def _synthesise_timed(
        self, clause: str, voice: str, words_per_minute: int, receiver: ClauseReceiver
    ) -> None:
        """Synthesises a clause with word times; runs in the synthesis thread."""
        words = ClauseWords(clause, self.info.rate_hz)
        events: list[EspeakEvent] = []

        def sink(pcm: Pcm) -> bool:
            for part in words.push(pcm, events):
                receiver.put(part)
            events.clear()
            return not receiver.is_cancelled

        self._library.synthesise(clause, voice, words_per_minute, sink, events.extend)
        for part in words.finish(events):
            receiver.put(part)

    def _voice(self, language: str, voice: str | None) -> str:
        voices = language_voices(self.info, language)
        if voice is None:
            return voices[0]
        if not self._library.has_voice(voice):
            raise RequestError(
                f"espeak has no voice {voice!r}; for {language} it has {', '.join(voices)}, "
                f"each also with +f1 to +f5 or +m1 to +m8",
                code="unknown_voice",
                param="voice",
            )
        return voice

    def _words_per_minute(self, speed: float) -> int:
        slowest, fastest = _WORDS_PER_MINUTE
        requested = round(NORMAL_WORDS_PER_MINUTE * self._settings.speed * check_speed(speed))
        return min(max(requested, slowest), fastest)


def create(settings: Settings) -> EspeakTts:
    """Returns the engine. Raises EngineMissing if the library cannot start."""
    library: EspeakLibrary = espeak_library()
    info = TtsInfo(
        "espeak",
        library.rate_hz,
        library.voices,
        has_word_times=True,
        genders=library.genders,
        ends_with_pause=False,
        loudness_lufs=LOUDNESS_LUFS,
    )
    return EspeakTts(info, library, settings)
