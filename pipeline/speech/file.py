"""Makes sound files of texts, for every door that gives speech without a session."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from core.access.limits import CapacityLimit
from core.audio import Pcm, samples_to_ms
from core.errors import NotFound
from core.tasks import run_in_thread
from engines.base import Tts
from engines.tts.shared.text import MAX_SPEED, MIN_SPEED
from media.files.encode import AudioEncoder, content_type_of, open_encoder
from media.resample import Resampler
from pipeline.shared.settings import DEFAULT, own_model
from pipeline.speech.language.clause_language import in_own_languages
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.requested_text import RequestedText
from pipeline.speech.ssml import SpeechManner
from pipeline.speech.synthesis import (
    Pause,
    PlannedClause,
    SpeechPlan,
    SpeechStep,
    SpeechSynthesis,
    clauses_of,
)
from pipeline.speech.voices import choose_voice, find_voices

MAX_PARALLEL = 16
"""Most texts that are spoken at once. A clause takes eSpeak some milliseconds of a core, a neural
voice up to a second. With more texts, the callers would wait too long for their first sound."""

PIECE_CHARS = 200
"Characters of a ready text that are given to the chunker at once."

RETRY_AFTER_S = 1
"Seconds that a refused caller is asked to wait. A text of a few clauses is spoken by then."


@dataclass(frozen=True, slots=True)
class SpeechFileOptions:
    """Voice and manner in which a text is spoken."""

    language: str
    "ISO 639-1 code."
    voice: str | None = None
    "Voice, in the form that `choose_voice` takes. None: the first one of the language."
    speed: float = 1.0
    "Speed of speech; 1.0 is the voice's normal one."
    engine: str = DEFAULT
    "Name of a TTS engine that alone may speak. DEFAULT: any."
    is_one_language: bool = False
    "True: every sentence is in `language`. False: a sentence in another one gets another voice."


class VoiceEngines(Protocol):
    """The voices that speech files may be spoken by; `pipeline.services.EngineSet`."""

    @property
    def tts(self) -> Mapping[str, Tts]:
        """Voice engines by name; DEFAULT is one of the names."""

    @property
    def is_strict(self) -> bool:
        """True: an unknown name is an error. False: it means DEFAULT."""


class SpeechFiles:
    """Makes sound files of texts. All doors share one instance, so that its limit holds for all."""

    def __init__(
        self,
        engines: VoiceEngines,
        languages: TextLanguageDetector | None = None,
        *,
        max_parallel: int = MAX_PARALLEL,
    ) -> None:
        """`languages`: finds sentences in another language. None: they are not looked for."""
        self._engines, self._languages = engines, languages
        self._places = CapacityLimit(
            max_parallel,
            "{limit} texts are being read, the limit",
            retry_after_s=RETRY_AFTER_S,
            code="engine_busy",
        )

    @property
    def count(self) -> int:
        """Number of texts that are being spoken."""
        return self._places.taken

    async def drain(self) -> None:
        """Takes no new texts and waits until those under way are finished."""
        await self._places.drain()

    def voices(self, engine: str = DEFAULT) -> Mapping[str, Tts]:
        """Returns the engines that may speak, by name: all, or the one that `engine` names.

        Model names of OpenAI's service mean all. Raises NotFound model_not_found.
        """
        every = self._engines.tts
        if own_model(engine) == DEFAULT:
            return every
        if engine not in every:
            if not self._engines.is_strict:
                return every
            known = ", ".join(dict.fromkeys([DEFAULT, *every]))
            raise NotFound(
                f"unknown model {engine[:64]!r}; allowed: {known}",
                code="model_not_found",
                param="model",
            )
        return {engine: every[engine]}

    def file(
        self,
        text: AsyncGenerator[str, None] | RequestedText,
        options: SpeechFileOptions,
        kind: str,
        rate_hz: int,
    ) -> "SpeechFile":
        """Returns the sound file of a text; it is made while it is read.

        text: one that a client sent, or pieces of a text as they come.
        kind: file format, by the names in `media.files.encode`.
        rate_hz: sample rate of the file.

        Raises NotFound model_not_found; RequestError voice_not_found, unsupported_language.
        """
        engines = self.voices(options.engine)
        plan = _plan(engines, options, SpeechManner())
        if isinstance(text, RequestedText) and text.is_ssml:
            parts = text.planned_parts(
                options.language, lambda manner: _plan(engines, options, manner)
            )
            return SpeechFile(self._places, plan, _document_steps(parts), kind, rate_hz)
        texts = single_text(text.written) if isinstance(text, RequestedText) else text
        steps = self._steps(texts, plan, options, engines)
        return SpeechFile(self._places, plan, steps, kind, rate_hz)

    def planned_file(self, text: str, plan: SpeechPlan, kind: str, rate_hz: int) -> "SpeechFile":
        """Returns the sound file of a text like `file`, in the voice of `plan` alone."""
        clauses = clauses_of(single_text(text), plan.language)
        return SpeechFile(self._places, plan, clauses, kind, rate_hz)

    def _steps(
        self,
        texts: AsyncGenerator[str, None],
        plan: SpeechPlan,
        options: SpeechFileOptions,
        engines: Mapping[str, Tts],
    ) -> AsyncGenerator[SpeechStep, None]:
        clauses = clauses_of(texts, plan.language)
        if self._languages is None or options.is_one_language:
            return clauses
        return in_own_languages(
            clauses,
            plan.language,
            self._languages,
            lambda language: _plan(engines, replace(options, language=language), SpeechManner()),
        )


def _plan(
    engines: Mapping[str, Tts], options: SpeechFileOptions, manner: SpeechManner
) -> SpeechPlan:
    """Returns how a text is spoken. Raises RequestError voice_not_found, unsupported_language."""
    language, voice = manner.language or options.language, manner.voice or options.voice
    if manner.voice and not manner.language:
        known = find_voices(engines, manner.voice)
        if known and not any(language in one.languages for one in known):
            language = known[0].languages[0]
    choice = choose_voice(engines, language, voice)
    speed = options.speed
    if manner.rate != 1:
        speed = min(max(speed * manner.rate, MIN_SPEED), MAX_SPEED)
    return SpeechPlan(choice.tts, language, choice.voice, speed, manner.volume)


async def _document_steps(
    parts: Sequence[tuple[str, SpeechPlan] | Pause],
) -> AsyncGenerator[SpeechStep, None]:
    """Yields the clauses and pauses of a document."""
    for part in parts:
        if isinstance(part, Pause):
            yield part
            continue
        text, plan = part
        async with aclosing(clauses_of(single_text(text), plan.language)) as clauses:
            async for clause in clauses:
                yield PlannedClause(clause, plan)


class SpeechFile:
    """One sound file while it is made. Read `chunks` once."""

    def __init__(
        self,
        places: CapacityLimit,
        plan: SpeechPlan,
        steps: AsyncGenerator[SpeechStep, None],
        kind: str,
        rate_hz: int,
    ) -> None:
        self.content_type = content_type_of(kind)
        self._places, self._plan = places, plan
        self._synthesis = SpeechSynthesis(plan, steps)
        self._kind, self._rate_hz = kind, rate_hz
        self._samples = 0

    @property
    def audio_ms(self) -> float:
        """Length of the sound so far, in ms."""
        return samples_to_ms(self._samples, self._plan.tts.info.rate_hz)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yields the file's bytes while it is made; none if there is nothing to speak.

        Closing it stops the voice. Raises OverloadedError, EngineError, RequestError.
        """
        with self._places.take():
            coder = _SpeechFileEncoder(
                open_encoder(self._kind, self._rate_hz), self._plan.tts, self._rate_hz
            )
            async with aclosing(self._synthesis.stream()) as sounds:
                async for pcm in sounds:
                    self._samples += len(pcm)
                    if data := await run_in_thread(coder.push, pcm):
                        yield data
            if self._samples:
                yield await run_in_thread(coder.finish)


class _SpeechFileEncoder:
    """Encodes an engine's samples for the file. Blocking: 20 s of Opus take 0.2 s of a core."""

    def __init__(self, encoder: AudioEncoder, tts: Tts, rate_hz: int) -> None:
        self._encoder = encoder
        self._resampler = Resampler(tts.info.rate_hz, rate_hz)

    def push(self, pcm: Pcm) -> bytes:
        return self._encoder.push(self._resampler.push(pcm)) if len(pcm) else b""

    def finish(self) -> bytes:
        return self._encoder.push(self._resampler.flush()) + self._encoder.finish()


async def single_text(text: str) -> AsyncGenerator[str, None]:
    """Yields a ready text in pieces, so that its first clause does not wait for the others."""
    for start in range(0, len(text), PIECE_CHARS):
        yield text[start : start + PIECE_CHARS]
