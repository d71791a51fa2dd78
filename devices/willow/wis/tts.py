"""Responses that are sound files: their parameters, and sending them while they are made."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from aiohttp import web as aioweb
from aiohttp.hdrs import METH_HEAD

from core.audio import ASR_RATE_HZ
from core.errors import RequestError
from core.http.client_connection import ClientDisconnected
from core.http.streaming import send
from core.tasks import single_error
from devices.willow.wis.params import allowed_text, invalid, number_of, text_of
from devices.willow.wis.speakers import speaker_voice
from media.files.encode import FORMATS, content_type_of, fix_wav_sizes
from pipeline.services import EngineSet
from pipeline.speech.file import SpeechFile, SpeechFileOptions
from pipeline.speech.voices import find_voices

RATE_HZ = ASR_RATE_HZ
"Willow's player resamples everything to this rate."

MAX_TEXT_CHARS = 4096
"Longest text that is spoken for one request, as in OpenAI's speech API."

SPEEDS = (0.25, 4.0)
"Lowest and highest `speed`, as a factor: 1 is the voice's own speed."

WHOLE_TIMEOUT_S = 2.0
"""Longest wait for a complete WAV file, in seconds. The sizes in its header are known only when it
is complete. A longer file is sent while it is made, with open sizes in the header: old firmware
gives up after 5 s."""


@dataclass(frozen=True, slots=True)
class TtsParams:
    """Format and voice of a sound file."""

    kind: str
    "Name of the audio format, such as wav."
    voice: str | None = None
    voice_language: str | None = None
    "Language of the voice that the request names."
    speed: float | None = None


def read_text(query: Mapping[str, str]) -> str:
    """Returns `text`, which is required. Raises RequestError."""
    text = " ".join(text_of(query, "text").split())
    if not text:
        raise RequestError(
            "text is missing: the text to speak", code="missing_required_parameter", param="text"
        )
    if len(text) > MAX_TEXT_CHARS:
        raise RequestError(
            f"text has {len(text)} characters; the limit is {MAX_TEXT_CHARS}",
            code="invalid_value",
            param="text",
        )
    return text


def read_tts_params(
    query: Mapping[str, str], engines: EngineSet, *, default_format: str = "wav"
) -> TtsParams:
    """Reads `format`, `speaker` and `speed`. Raises RequestError.

    default_format: the format if the query names none. An unknown voice is replaced by the
    language's own, as is one that does not speak the language.
    """
    kind = text_of(query, "format").lower() or default_format
    if kind not in FORMATS:
        raise invalid(
            "format", kind, allowed_text([format_name.upper() for format_name in FORMATS])
        )
    speaker, language = _known_voice(text_of(query, "speaker"), engines)
    return TtsParams(kind, speaker, language, number_of(query, "speed", *SPEEDS))


def _known_voice(speaker: str, engines: EngineSet) -> tuple[str | None, str | None]:
    """Returns the voice and its language. The text is in that language if nothing else names one.

    A speaker of WIS says nothing about the language: its clients send one with every text.
    """
    if voices := find_voices(engines.tts, speaker):
        return speaker, voices[0].languages[0]
    return speaker_voice(engines.tts, speaker), None


def read_language(query: Mapping[str, str]) -> str | None:
    """Returns `language` without its region; None if it is absent."""
    return text_of(query, "language").lower().replace("_", "-").partition("-")[0] or None


def spoken_language(language: str | None, engines: EngineSet) -> str:
    """Returns the language, or the server's default. Raises RequestError unsupported_language."""
    spoken = {code for tts in engines.tts.values() for code in tts.info.voices}
    language = language or engines.default_language
    if language not in spoken:
        raise invalid(
            "language", language, allowed_text(sorted(spoken)), code="unsupported_language"
        )
    return language


def file_options(params: TtsParams, language: str) -> SpeechFileOptions:
    """Returns the options of a sound file."""
    return SpeechFileOptions(language, params.voice, params.speed or 1.0)


def head_only(request: aioweb.Request, params: TtsParams) -> aioweb.Response | None:
    """Returns the response to a HEAD request, without making any sound; None for other requests."""
    if request.method != METH_HEAD:
        return None
    return aioweb.Response(headers=_headers(content_type_of(params.kind)))


async def speak(
    request: aioweb.Request, sound: SpeechFile, *, is_sized: bool = False
) -> aioweb.StreamResponse:
    """Sends the sound while it is made.

    is_sized: send a WAV file with its true sizes, as WIS does, if it is complete in time.
    Raises EngineError before the first byte. After that an error cuts the connection, so that the
    client does not take half an answer as complete.
    """
    async with aclosing(sound.chunks()) as chunks:
        if not is_sized:
            return await _stream(request, sound, chunks)
        with single_error():
            async with asyncio.TaskGroup() as tasks:
                made, next_chunk = await _first_chunks(chunks, tasks)
                if next_chunk is None and made:
                    headers = _headers(sound.content_type)
                    return aioweb.Response(body=fix_wav_sizes(made), headers=headers)
                return await _stream(request, sound, _rejoin(made, next_chunk, chunks))


async def _stream(
    request: aioweb.Request, sound: SpeechFile, chunks: AsyncGenerator[bytes, None]
) -> aioweb.StreamResponse:
    first = await anext(chunks, b"")
    if not first:
        raise RequestError("nothing in text can be spoken", code="invalid_value", param="text")
    response = aioweb.StreamResponse(headers=_headers(sound.content_type))
    try:
        await response.prepare(request)
        await send(response, first)
        async for chunk in chunks:
            await send(response, chunk)
        await response.write_eof()
    except ConnectionError as exc:
        raise ClientDisconnected from exc
    return response


async def _first_chunks(
    chunks: AsyncGenerator[bytes, None], tasks: asyncio.TaskGroup
) -> tuple[bytes, asyncio.Task[bytes | None] | None]:
    """Returns the chunks of the first WHOLE_TIMEOUT_S seconds, and the task of the next chunk;
    None: the sound is complete."""
    made = bytearray()
    step = tasks.create_task(_next(chunks))
    try:
        async with asyncio.timeout(WHOLE_TIMEOUT_S):
            while (chunk := await asyncio.shield(step)) is not None:
                made += chunk
                step = tasks.create_task(_next(chunks))
    except TimeoutError:
        return bytes(made), step
    return bytes(made), None


async def _next(chunks: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(chunks, None)


async def _rejoin(
    sound: bytes, next_chunk: asyncio.Task[bytes | None] | None, chunks: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    if sound:
        yield sound
    if next_chunk is not None and (chunk := await next_chunk) is not None:
        yield chunk
        async for chunk in chunks:
            yield chunk


def _headers(content_type: str) -> dict[str, str]:
    return {"Content-Type": content_type, "Cache-Control": "no-store"}
