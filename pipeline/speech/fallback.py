"""A second voice for clauses that the first one cannot speak, so that the answer goes on."""

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing

from core.audio import AudioFrame
from core.errors import EarshotError, EngineError, RequestError
from core.ports import Metrics
from engines.base import Tts, TtsInfo, WordMark
from engines.tts.shared.text import UNSPEAKABLE, clauses_of
from media.resample import Resampler
from pipeline.shared.plugin_errors import plugin_errors
from pipeline.speech.cache import ClauseRequest
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.synthesis import matching_gain, scaled

logger = logging.getLogger(__name__)


class FallbackTts:
    """A `Tts` that asks another one for each clause, and a fallback for those that fail.

    A clause fails before its first sound: the engine is broken, or refuses a text in a language
    that it does not know. An error after the first sound is raised, because a clause that is
    repeated in another voice confuses more than an apology.
    """

    def __init__(
        self, tts: Tts, fallback: Tts, languages: TextLanguageDetector, metrics: Metrics
    ) -> None:
        """`languages`: finds the language of a text that `tts` refuses."""
        self._tts, self._fallback = tts, fallback
        self._languages, self._metrics = languages, metrics

    @property
    def info(self) -> TtsInfo:
        """Properties of the first voice. They change where each caller has voices of their own."""
        return self._tts.info

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
        start = index = 0
        async for chunk in text:
            for begin, part in clauses_of(chunk):
                clause = ClauseRequest(part, index, start, self.info.rate_hz, on_word, begin)
                async with aclosing(self._clause(clause, language, voice, speed)) as frames:
                    async for frame in frames:
                        yield frame
                        start = frame.end
            index += 1

    async def _clause(
        self, clause: ClauseRequest, language: str, voice: str | None, speed: float
    ) -> AsyncGenerator[AudioFrame, None]:
        """Yields the sound of a clause, by the fallback engine if the first one fails."""
        has_begun = False
        frames = self._tts.speak(
            clause.alone(),
            language=language,
            voice=voice,
            speed=speed,
            on_word=clause.on_word and clause.report,
        )
        try:
            with plugin_errors("tts", self.info.name):
                async with aclosing(frames):
                    async for frame in frames:
                        has_begun = True
                        yield clause.placed(frame)
            return
        except EarshotError as error:
            is_refused = isinstance(error, RequestError) and error.code == UNSPEAKABLE
            if has_begun or not (is_refused or isinstance(error, EngineError)):
                raise
            if language not in self._fallback.info.voices:
                raise
            self._note(error)
        if is_refused:
            known = self._fallback.info.voices
            language = await self._languages.detect(clause.text, language, known)
        async with aclosing(self._spoken_by_fallback(clause, language, speed)) as sounds:
            async for frame in sounds:
                yield frame

    def _note(self, error: EarshotError) -> None:
        """Logs a failure of the engine, but not a refused text, and counts both."""
        self._metrics.count("earshot_tts_fallbacks", code=error.code)
        if isinstance(error, EngineError):
            self._metrics.count("earshot_errors", code=error.code)
            logger.warning("! %s; %s speaks the clause", error, self._fallback.info.name)

    async def _spoken_by_fallback(
        self, clause: ClauseRequest, language: str, speed: float
    ) -> AsyncGenerator[AudioFrame, None]:
        """Yields the fallback engine's sound of a clause, at the first engine's sample rate."""
        start = clause.start
        resampler = Resampler(self._fallback.info.rate_hz, self.info.rate_hz)
        gain = matching_gain(self._fallback.info, self.info)
        frames = self._fallback.speak(
            clause.alone(),
            language=language,
            speed=speed,
            on_word=clause.on_word and clause.report,
        )
        async with aclosing(frames):
            async for frame in frames:
                if len(pcm := resampler.push(frame.pcm)):
                    yield AudioFrame(scaled(pcm, gain), self.info.rate_hz, start)
                    start += len(pcm)
        if start > clause.start and len(pcm := resampler.flush()):
            yield AudioFrame(scaled(pcm, gain), self.info.rate_hz, start)
