"""Own voices: each is made of a recording, and only clients with its owner's key can use it."""

import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

import numpy as np

from core.audio import AudioFrame, Pcm
from core.conversation.ids import new_id
from core.errors import EngineError, EngineMissing, RequestError
from core.tasks import run_in_thread
from engines.base import TtsInfo, WordMark
from engines.tts.shared.text import choose_voice, clauses_of
from media.files.decode import FileDecoder
from media.files.upload_spool import UploadSpool
from pipeline.speech.cache import ClauseRequest
from pipeline.speech.voice_reference import MAX_S, check_reference
from serving.workers.process_tts import ProcessTts

OWN_VOICES = "own"
"Name of the voices among the engines: `own/anna`."

RECORDING = "recording"
"Name of the voice of a recording that is used once."

NAME_PATTERN = r"[A-Za-z0-9_-]{1,32}"
"Names are parts of ids and paths."

CONSENT = (
    "This is my own voice, or the person whose voice it is has agreed to this. The server may"
    " compute a copy of the voice from the recording, and may speak any text in it for the holder"
    " of this key, until the voice is deleted."
)
"Text to which a person agrees. It is kept with the voice."

MAX_CONDITION_BYTES = 16 * 1024 * 1024
"Largest condition. That of a recording of 15 s has 9 MB in float32 with the model `pocket`."


@dataclass(frozen=True, slots=True)
class OwnVoice:
    """A voice that was made of a recording."""

    id: str
    "Id that no other voice ever has: a new voice of the same name has another one."
    name: str
    "Name for people, which no other voice of the owner has."
    language: str
    "ISO 639-1 code."
    consent: str
    "Text to which the person agreed."
    created: datetime
    "Time of the consent and of the voice."


class VoiceConditions(Protocol):
    """Knows the voices in which a request may be spoken."""

    def list_all(self) -> Sequence[OwnVoice]:
        """Returns the caller's voices by name."""
        ...

    def find(self, name: str) -> OwnVoice:
        """Returns a voice of the caller. Raises NotFound voice_not_found."""
        ...

    async def condition(self, voice: OwnVoice) -> bytes:
        """Returns the condition of a voice. Raises NotFound voice_not_found, StorageError."""
        ...


class OwnVoiceStore(VoiceConditions, Protocol):
    """Keeps voices. All methods are about those of the owner that `CALLER_KEY` names."""

    on_gone: list[Callable[[str], None]]
    "Is called with the id of each voice that any owner has deleted."

    async def add(self, name: str, language: str, consent: str, condition: bytes) -> OwnVoice:
        """Adds a voice of the caller. Raises Conflict, NotFound, StorageError."""
        ...

    async def delete(self, name: str) -> None:
        """Deletes a voice of the caller. Raises NotFound voice_not_found, StorageError."""
        ...


class OwnVoices:
    """Makes voices of recordings, lists and deletes them."""

    def __init__(self, tts: ProcessTts, store: OwnVoiceStore) -> None:
        """`tts`: an engine with `TtsInfo.can_clone`."""
        self._tts, self._store = tts, store
        store.on_gone.append(tts.forget_voice)

    @property
    def rate_hz(self) -> int:
        """Sample rate of recordings in Hz."""
        return self._tts.info.rate_hz

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 codes of the languages that the voices can speak, the default first."""
        return tuple(self._tts.info.voices)

    def list_all(self) -> Sequence[OwnVoice]:
        """Returns the caller's voices by name."""
        return self._store.list_all()

    async def add(self, name: str, language: str, consent: str, pcm: Pcm) -> OwnVoice:
        """Makes a voice of a recording. The recording is not kept.

        `language`: ISO 639-1; empty: the engine's first one. `consent`: CONSENT, as the person saw
        it. `pcm`: at `rate_hz`. Raises RequestError for a wrong field and for a recording of which
        no voice can be made, Conflict, EngineError, StorageError.
        """
        if language and language not in self.languages:
            raise RequestError(
                f"no own voice speaks {language[:64]!r}; allowed: {', '.join(self.languages)}",
                code="unsupported_language",
                param="language",
            )
        condition = await self._condition(pcm)
        return await self._store.add(name, language or self.languages[0], consent, condition)

    async def delete(self, name: str) -> None:
        """Deletes a voice of the caller with all that was computed of it. Raises NotFound
        voice_not_found, StorageError."""
        await self._store.delete(name)

    @asynccontextmanager
    async def once(self, pcm: Pcm) -> AsyncGenerator["OwnVoicesTts", None]:
        """Yields a `Tts` with one voice, that of a recording. Nothing is kept of it afterwards.

        `pcm`: at `rate_hz`. Raises RequestError for a recording of which no voice can be made,
        EngineError.
        """
        source = _Recording(self.languages[0], await self._condition(pcm))
        try:
            yield OwnVoicesTts(self._tts, source)
        finally:
            self._tts.forget_voice(source.voice.id)

    async def _condition(self, pcm: Pcm) -> bytes:
        await run_in_thread(check_reference, pcm, self.rate_hz)
        condition = await self._tts.voice_condition(pcm)
        if len(condition) > MAX_CONDITION_BYTES:
            why = f"the voice takes {len(condition)} bytes; allowed: {MAX_CONDITION_BYTES}"
            raise EngineError("tts", self._tts.info.name, why)
        return condition


@dataclass(frozen=True, slots=True)
class OwnVoiceRequest:
    """Fields of a request for a voice, as the client sent them."""

    name: str
    consent: str
    "CONSENT, word for word."
    language: str
    "ISO 639-1; empty: the engine's first one."


async def make_voice(
    voices: OwnVoices,
    decoder: FileDecoder,
    spool: UploadSpool,
    wanted: OwnVoiceRequest,
    *,
    name_param: str = "name",
    file_param: str,
) -> OwnVoice:
    """Makes a voice of the file in the spool. `name_param`, `file_param`: names that the fields
    have at this door. Raises RequestError, Conflict, EngineError, OverloadedError, StorageError."""
    if not wanted.name:
        raise RequestError(
            f"the field {name_param!r} is missing: a name for the voice",
            code="missing_required_parameter",
            param=name_param,
        )
    _check_name(wanted.name, name_param)
    check_consent(wanted.consent)
    try:
        pcm = await decode_recording(decoder, spool, voices.rate_hz)
        return await voices.add(wanted.name, wanted.language, CONSENT, pcm)
    except RequestError as error:
        error.param = error.param or file_param
        raise


def check_consent(consent: str) -> None:
    """Raises RequestError consent_required for any other text than CONSENT."""
    if " ".join(consent.split()) != CONSENT:
        raise RequestError(
            "the field 'consent' must hold the text to which the person has agreed, word for word:"
            f" {CONSENT}",
            code="consent_required",
            param="consent",
        )


def enabled(voices: OwnVoices | None) -> OwnVoices:
    """Returns the voices. Raises EngineMissing if they are off."""
    if voices is None:
        why = "voices of recordings are off, or their engine does not load: tts.own_voices.engine"
        raise EngineMissing("tts", OWN_VOICES, why)
    return voices


async def decode_recording(decoder: FileDecoder, spool: UploadSpool, rate_hz: int) -> Pcm:
    """Returns the sound of the file. Of a file that is too long, only the beginning is decoded."""
    pieces: list[Pcm] = []
    missing = MAX_S * rate_hz + 1
    async with aclosing(decoder.blocks(await spool.file(), rate_hz)) as blocks:
        async for block in blocks:
            pieces.append(block[:missing])
            missing -= len(pieces[-1])
            if not missing:
                break
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int16)


def _check_name(name: str, param: str) -> None:
    """Raises RequestError for a name that a voice cannot have."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise RequestError(
            f"{name[:64]!r} is no name for a voice: 1 to 32 of the characters A to Z, a to z, 0 to"
            " 9, _ and -",
            code="invalid_value",
            param=param,
        )


class _Recording:
    """A `VoiceConditions` with one voice, which is kept nowhere."""

    def __init__(self, language: str, condition: bytes) -> None:
        now = datetime.fromtimestamp(0, UTC)  # no time is kept, either
        self.voice = OwnVoice(new_id("voice"), RECORDING, language, CONSENT, now)
        self._condition = condition

    def list_all(self) -> Sequence[OwnVoice]:
        return (self.voice,)

    def find(self, name: str) -> OwnVoice:
        return self.voice

    async def condition(self, voice: OwnVoice) -> bytes:
        return self._condition


class OwnVoicesTts:
    """A `Tts` with the voices of the caller's key, whom `CALLER_KEY` names."""

    def __init__(self, tts: ProcessTts, store: VoiceConditions) -> None:
        self._tts, self._store = tts, store

    @property
    def info(self) -> TtsInfo:
        """Properties of the engine with the caller's voices."""
        voices: dict[str, tuple[str, ...]] = {}
        for voice in self._store.list_all():
            voices[voice.language] = (*voices.get(voice.language, ()), voice.name)
        return TtsInfo(OWN_VOICES, self._tts.info.rate_hz, voices)

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        """Streams the speech (see `Tts.speak`). No engine of this kind gives the times of words.

        Raises RequestError for an unknown language, voice or speed, also for a voice that is
        deleted meanwhile; PayloadTooLarge for a chunk beyond MAX_CHUNK_CHARS; EngineError.
        """
        info = self.info
        start = index = 0
        async for chunk in text:
            for begin, part in clauses_of(chunk):
                own = self._store.find(choose_voice(self.info, language, voice))
                clause = ClauseRequest(part, index, start, info.rate_hz, None, begin)
                frames = self._tts.speak_clause(
                    part,
                    language=language,
                    voice=own.id,
                    condition=partial(self._store.condition, own),
                    speed=speed,
                )
                try:
                    async with aclosing(frames):
                        async for frame in frames:
                            yield clause.placed(frame)
                            start = clause.start + frame.end
                finally:
                    # A voice that was deleted while its condition was on the way may be held again.
                    if own not in self._store.list_all():
                        self._tts.forget_voice(own.id)
            index += 1
