"""Texts read aloud as sound files, for every door that gives speech away without a session."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from core.audio import Pcm, samples_to_ms
from core.errors import NotFound
from core.limits import CapacityLimit
from core.tasks import run_in_thread
from engines.base import Tts
from media.files.encode import AudioEncoder, content_type_of, open_encoder
from media.resample import Resampler
from pipeline.shared.plugin_errors import plugin_errors
from pipeline.shared.settings import DEFAULT, own_model
from pipeline.speech.chunker import ClauseChunker
from pipeline.speech.normalize import ClauseNormalizer
from pipeline.speech.voices import VoiceChoice, choose_voice

MAX_PARALLEL = 16
"""Texts read at once. A clause of eSpeak takes a core some milliseconds, one of a neural voice up
to a second: whoever comes later would hear nothing for longer than he waits."""

PIECE_CHARS = 200

RETRY_AFTER_S = 1
"A text of a few clauses is read within that."


@dataclass(frozen=True, slots=True)
class SpeechFileOptions:
    """How a text is read."""

    language: str
    voice: str | None = None
    "As `choose_voice` takes it; None: the language's own."
    speed: float = 1.0
    engine: str = DEFAULT
    "Another name: this one and no other."


class VoiceEngines(Protocol):
    """The voices that speech files may be spoken by; `pipeline.services.EngineSet`."""

    @property
    def tts(self) -> Mapping[str, Tts]:
        """Voice engines by name; DEFAULT is one of the names."""

    @property
    def is_strict(self) -> bool:
        """True: an unknown name is an error. False: it means DEFAULT."""


class SpeechFiles:
    """All doors share one, so that its bound holds for all of them together."""

    def __init__(self, engines: VoiceEngines, *, max_parallel: int = MAX_PARALLEL) -> None:
        self._engines = engines
        self._places = CapacityLimit(
            max_parallel, "texts are being read", retry_after_s=RETRY_AFTER_S, code="engine_busy"
        )

    @property
    def count(self) -> int:
        """Texts that are being read."""
        return self._places.taken

    async def drain(self) -> None:
        """Read no new texts; wait until those under way are read."""
        await self._places.drain()

    def voices(self, engine: str = DEFAULT) -> Mapping[str, Tts]:
        """Those that may speak, by name: all of them, or the one that is named. Names of the hosted
        service mean all. Raises NotFound model_not_found."""
        every = self._engines.tts
        if own_model(engine) == DEFAULT:
            return every
        if engine not in every:
            if not self._engines.is_strict:
                return every
            there = ", ".join(dict.fromkeys([DEFAULT, *every]))
            raise NotFound(
                f"unknown model {engine[:64]!r}; those that speak: {there}",
                code="model_not_found",
                param="model",
            )
        return {engine: every[engine]}

    def file(
        self, texts: AsyncGenerator[str, None], manner: SpeechFileOptions, kind: str, rate_hz: int
    ) -> "SpeechFile":
        """`texts`: pieces of one text as they come. `kind`: of `media.files.encode`.

        Raises NotFound model_not_found; RequestError voice_not_found, unsupported_language.
        """
        choice = choose_voice(self.voices(manner.engine), manner.language, manner.voice)
        return SpeechFile(self._places, choice, texts, manner, kind, rate_hz)


class SpeechFile:
    """`chunks`, once."""

    def __init__(
        self,
        places: CapacityLimit,
        choice: VoiceChoice,
        texts: AsyncGenerator[str, None],
        manner: SpeechFileOptions,
        kind: str,
        rate_hz: int,
    ) -> None:
        self.content_type = content_type_of(kind)
        self._places, self._texts, self._manner = places, texts, manner
        self._tts, self._voice = choice.tts, choice.voice
        self._kind, self._rate_hz = kind, rate_hz
        self._samples = 0

    @property
    def audio_ms(self) -> float:
        """Of sound so far."""
        return samples_to_ms(self._samples, self._tts.info.rate_hz)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Pieces of the file while it is made; none at all where there is nothing to hear. Closing
        it stops the voice.

        Raises Overloaded, EngineError, RequestError.
        """
        manner = self._manner
        with self._places.take():
            coder = _SpeechFileEncoder(
                open_encoder(self._kind, self._rate_hz), self._tts, self._rate_hz
            )
            async with aclosing(clauses(self._texts, manner.language)) as source:
                with plugin_errors("tts", self._tts.info.name):
                    frames = self._tts.speak(
                        source, language=manner.language, voice=self._voice, speed=manner.speed
                    )
                    async with aclosing(frames):
                        async for frame in frames:
                            self._samples += len(frame.pcm)
                            if data := await run_in_thread(coder.push, frame.pcm):
                                yield data
            if self._samples:
                yield await run_in_thread(coder.finish)


class _SpeechFileEncoder:
    """Engine's samples to bytes of the file. Blocking: 20 s of Opus take 0.2 s of a core."""

    def __init__(self, encoder: AudioEncoder, tts: Tts, rate_hz: int) -> None:
        self._encoder = encoder
        self._resampler = Resampler(tts.info.rate_hz, rate_hz)

    def push(self, pcm: Pcm) -> bytes:
        return self._encoder.push(self._resampler.push(pcm)) if len(pcm) else b""

    def finish(self) -> bytes:
        return self._encoder.push(self._resampler.flush()) + self._encoder.finish()


async def clauses(texts: AsyncGenerator[str, None], language: str) -> AsyncGenerator[str, None]:
    """As conversations speak: the voice begins with the first one while the others wait. Closing it
    closes `texts`."""
    chunker, reader = ClauseChunker(language), ClauseNormalizer(language)
    async with aclosing(texts):
        async for text in texts:
            for clause in chunker.push(text):
                if spoken := reader.read(clause).text:
                    yield spoken
    if (rest := chunker.flush()) and (spoken := reader.read(rest).text):
        yield spoken


async def single_text(text: str) -> AsyncGenerator[str, None]:
    """A text that is there already, as one that comes: its first clause is not kept waiting while
    the others are found."""
    for start in range(0, len(text), PIECE_CHARS):
        yield text[start : start + PIECE_CHARS]
