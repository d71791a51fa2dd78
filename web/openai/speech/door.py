"""Serves text to speech of OpenAI's REST API: a sound file is sent while it is made."""

from base64 import b64encode
from collections.abc import Mapping
from contextlib import aclosing, suppress
from math import ceil
from typing import Any

import msgspec
from aiohttp import web as aioweb
from msgspec import UNSET, Struct

from core.errors import EarshotError, RequestError
from core.http.client_connection import ClientDisconnected, while_connected
from core.http.routes import JSON
from core.http.streaming import send
from engines.base import Tts
from pipeline.services import EngineSet
from pipeline.shared.settings import DEFAULT, InitialSettings, SessionSettings
from pipeline.speech.file import SpeechFile, SpeechFileOptions, SpeechFiles
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.own_voices import OWN_VOICES
from pipeline.speech.requested_text import RequestedText
from pipeline.speech.voices import find_voices, unknown_voice_error
from serving.remote.models import RemoteModels
from web.openai.json_body import read_json
from web.openai.limits import RequestLimit
from web.openai.remote import send_answer
from web.openai.speech.fields import SpeechFields, SpeechVoiceId, Speed, decode_body
from web.openai.speech.samples import VoiceSamples, sample_text
from web.openai.speech.voice_cards import voice_list, voice_model_list
from web.openai.transcriptions.languages import code_of
from web.openai.transcriptions.sse import SseResponse, error_event

_FIRST_VOICES = ("alloy", "echo", "fable", "nova", "onyx", "shimmer")
_LATER_VOICES = ("ash", "ballad", "cedar", "coral", "marin", "sage", "verse")

OPENAI_VOICES = frozenset((*_FIRST_VOICES, *_LATER_VOICES))
"""Names of OpenAI's service. Clients send one because the field is required. Each speaks every
language, so the name says nothing about the language."""


def requested_voice(engines: Mapping[str, Tts], name: str) -> tuple[str | None, str | None]:
    """Returns the voice, in the form that `choose_voice` takes, and its language. None: the client
    leaves the choice to the server.

    name: a voice, as for `find_voices`, or an engine. Raises RequestError voice_not_found.
    """
    if voices := find_voices(engines, name):
        voice = voices[0]
        return name, None if voice.name in OPENAI_VOICES else voice.languages[0]
    if name.lower() in (*OPENAI_VOICES, "", DEFAULT):
        return None, None
    if name in engines:
        return name, None
    raise unknown_voice_error(engines, name)


RATE_HZ = 24_000
"Sample rate of all formats; that of OpenAI's `pcm`."

TOKEN_MS = 50
"Length of sound in ms that counts as one token, as in the Realtime API."


SAMPLE_MAX_AGE_S = 600
"""Time for which a browser may keep a sample, in seconds. After a restart the same id may be
another speaker of a new model."""


class SpeechUsage(Struct, frozen=True):
    """Usage of a request. Voices have no tokens: words of the text count as input, and each 50 ms
    of sound as output."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class AudioDelta(Struct, frozen=True, tag="speech.audio.delta"):
    """The next piece of the sound file."""

    audio: str
    "Base64 of the file's next bytes."


class AudioDone(Struct, frozen=True, tag="speech.audio.done"):
    """The end of the sound file."""

    usage: SpeechUsage


class SpeechDoor:
    """Handles the requests of `/v1/audio/speech` and its lists.

    speech_files: makes the sound files, and limits how many are made at once.
    """

    def __init__(
        self,
        engines: EngineSet,
        speech_files: SpeechFiles,
        languages: TextLanguageDetector,
        limit: RequestLimit,
        remote: RemoteModels,
        initial_settings: InitialSettings = SessionSettings,
    ) -> None:
        """`remote`: models of other servers, which come before our own of the same name.
        `initial_settings`: voice, speed and likely language where the request leaves them open."""
        self._initial_settings = initial_settings
        self._engines, self._speech_files, self._languages = engines, speech_files, languages
        self._limit, self._remote = limit, remote
        self._samples = VoiceSamples(speech_files)

    async def speech(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `POST /v1/audio/speech`. Raises RequestError, OverloadedError, EngineError."""
        sent = await read_json(request)
        fields = decode_body(sent)
        if remote := self._remote.get("tts", fields.model):
            body = msgspec.json.decode(sent, type=dict[str, Any])
            parts = remote.stream("/audio/speech", body, [fields.input, fields.instructions])
            return await while_connected(request, send_answer(request, parts))
        async with self._limit.take():
            return await while_connected(request, self._speak(request, fields))

    async def voices(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v1/audio/voices`. Raises RequestError unsupported_language,
        invalid_value."""
        language, engine = (request.query.get(name, "") for name in ("language", "engine"))
        return _json(
            voice_list(
                self._speech_files.voices(),
                self._engines.default_language,
                language=code_of(language) or language,
                engine=engine,
            )
        )

    async def sample(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `GET /v1/audio/voices/{id}/sample`. Raises RequestError, OverloadedError,
        EngineError."""
        options = self._sample_options(request)
        is_own = self._is_own(options.voice)
        sound = self._samples.kept(options)
        if sound is None or is_own:
            async with self._limit.take():
                making = self._samples.make(options, keeps=not is_own)
                sound = await while_connected(request, making)
        if not sound:
            raise RequestError("This voice has no sample.", code="invalid_value", param="id")
        kept = "no-store" if is_own else f"private, max-age={SAMPLE_MAX_AGE_S}"
        headers = {"Cache-Control": kept}
        return aioweb.Response(body=sound, content_type="audio/wav", headers=headers)

    async def models(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v1/audio/models`."""
        return _json(voice_model_list(self._speech_files.voices()))

    async def open_file(self, fields: SpeechFields) -> SpeechFile:
        """Returns the sound file of a text; it is made while it is read.

        Raises NotFound model_not_found; RequestError invalid_ssml, voice_not_found,
        unsupported_language.
        """
        return await self._open_file(RequestedText.of(fields.input, "input"), fields)

    async def _open_file(self, text: RequestedText, fields: SpeechFields) -> SpeechFile:
        options = await self._file_options(text, fields)
        return self._speech_files.file(text, options, fields.response_format, RATE_HZ)

    def sample_text(self, voice: str) -> str:
        """Returns the sentence of a voice's sample. Raises RequestError voice_not_found."""
        engines = self._speech_files.voices()
        requested_voice(engines, voice)
        return sample_text(self._sample_language(voice))

    def _is_own(self, voice: str | None) -> bool:
        """Returns True for a voice of the caller's own. It leaves no copy in a cache, because
        another key may have a voice of the same name, and it may be deleted."""
        found = find_voices(self._speech_files.voices(), voice) if voice else ()
        return bool(found) and found[0].engine == OWN_VOICES

    def _sample_language(self, voice: str) -> str:
        """Returns the language of a voice's sample: the server's own one if the voice speaks it."""
        found = find_voices(self._speech_files.voices(), voice)
        spoken = [code for one in found for code in one.languages]
        default_language = self._engines.default_language
        return default_language if default_language in spoken or not spoken else spoken[0]

    def _sample_options(self, request: aioweb.Request) -> SpeechFileOptions:
        """Returns voice and language of a sample. Raises RequestError voice_not_found,
        unsupported_language, invalid_value."""
        engines, name = self._speech_files.voices(), request.match_info["id"]
        voice, _ = requested_voice(engines, name)
        spoken = [code for one in find_voices(engines, name) for code in one.languages]
        query_language = request.query.get("language", "")
        language = code_of(query_language) or query_language or self._sample_language(name)
        if spoken and language not in spoken:
            raise RequestError(
                f"Invalid value for 'language': {language[:64]!r}. This voice speaks"
                f" {', '.join(sorted(set(spoken)))}.",
                code="unsupported_language",
                param="language",
            )
        return SpeechFileOptions(language, voice, _speed(request.query.get("speed", "1")))

    async def _speak(self, request: aioweb.Request, fields: SpeechFields) -> aioweb.StreamResponse:
        text = RequestedText.of(fields.input, "input")
        speech_file = await self._open_file(text, fields)
        if fields.stream_format == "sse":
            return await _stream_events(request, fields, text.plain_text, speech_file)
        return await _stream_file(request, speech_file)

    async def _file_options(self, text: RequestedText, fields: SpeechFields) -> SpeechFileOptions:
        """Returns voice and language. Raises NotFound model_not_found.

        Raises RequestError voice_not_found, unsupported_language.
        """
        engines = self._speech_files.voices(fields.model)
        name = fields.voice.id if isinstance(fields.voice, SpeechVoiceId) else fields.voice
        settings = self._initial_settings()
        default_language = settings.language or self._engines.default_language
        voice, voice_language = requested_voice(engines, name)
        if voice is None and settings.voice != DEFAULT:
            with suppress(RequestError):  # another engine was asked for, which lacks this voice
                voice, _ = requested_voice(engines, settings.voice)
        spoken_languages = sorted({code for tts in engines.values() for code in tts.info.voices})
        if fields.language:
            language = code_of(fields.language) or fields.language.lower()
        else:
            language = (
                text.language
                or voice_language
                or await self._languages.detect(text.plain_text, default_language, spoken_languages)
            )
        if language not in spoken_languages:
            raise RequestError(
                f"Invalid value for 'language': {language[:64]!r}. Allowed:"
                f" {', '.join(spoken_languages)}.",
                code="unsupported_language",
                param="language",
            )
        speed = settings.speed if fields.speed is UNSET else fields.speed
        return SpeechFileOptions(
            language, voice, speed, fields.model, is_one_language=bool(fields.language)
        )


def _speed(text: str) -> float:
    """Parses the speed in a query. Raises RequestError invalid_value."""
    try:
        return msgspec.convert(text, Speed, strict=False)
    except msgspec.ValidationError:
        raise RequestError(
            f"Invalid value for 'speed': {text[:64]!r}. Allowed: 0.25 to 4.",
            code="invalid_value",
            param="speed",
        ) from None


async def _stream_file(request: aioweb.Request, speech_file: SpeechFile) -> aioweb.StreamResponse:
    """Sends the file in chunks.

    An error before the first chunk becomes a status. After it the connection is cut, so that half a
    file is not taken for a whole one.
    """
    response = aioweb.StreamResponse(headers={"Content-Type": speech_file.content_type})
    response.headers["Cache-Control"] = "no-store"
    try:
        async with aclosing(speech_file.chunks()) as chunks:
            async for chunk in chunks:
                if not response.prepared:
                    await response.prepare(request)
                await send(response, chunk)
            if not response.prepared:
                raise nothing_to_speak("input")
            await response.write_eof()
    except ConnectionError as exc:
        raise ClientDisconnected from exc
    return response


async def _stream_events(
    request: aioweb.Request, fields: SpeechFields, words: str, speech_file: SpeechFile
) -> aioweb.StreamResponse:
    """Sends the file as server-sent events. An error after the first one is an event, too.
    `words`: the text without marks."""
    events = SseResponse(request)
    try:
        async with aclosing(speech_file.chunks()) as chunks:
            async for chunk in chunks:
                await events.send(AudioDelta(b64encode(chunk).decode()))
            if not events.has_begun:
                raise nothing_to_speak("input")
            await events.send(AudioDone(_usage(words, speech_file.audio_ms)))
    except ClientDisconnected:
        raise
    except EarshotError as error:
        if not events.has_begun:
            raise
        await events.send(error_event(error))
    return await events.end(with_done_line=fields.stream_done)


def token_counts(text: str, audio_ms: float) -> tuple[int, int]:
    """Returns the tokens of a text and its sound, as `SpeechUsage` counts them."""
    return len(text.split()), ceil(audio_ms / TOKEN_MS)


def _usage(text: str, audio_ms: float) -> SpeechUsage:
    input_tokens, output_tokens = token_counts(text, audio_ms)
    return SpeechUsage(input_tokens, output_tokens, input_tokens + output_tokens)


def _json(body: Struct) -> aioweb.Response:
    return aioweb.Response(body=msgspec.json.encode(body), content_type=JSON)


def nothing_to_speak(param: str) -> RequestError:
    """Returns the error for a text without words in the field `param`."""
    return RequestError(f"Nothing in '{param}' can be spoken.", code="invalid_value", param=param)
