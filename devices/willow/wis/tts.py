"""Answers that are sound files: which one is wanted, and how it goes out while it is made."""

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
from media.files.encode import FORMATS, content_type_of, fix_wav_sizes
from pipeline.services import EngineSet
from pipeline.speech.file import SpeechFile, SpeechFileOptions

RATE_HZ = ASR_RATE_HZ
"Willow's player resamples everything to this."

MAX_TEXT_CHARS = 4096

SPEEDS = (0.25, 4.0)

WHOLE_TIMEOUT_S = 2.0
"""The sizes in a WAV file's head are known when all of it is made. A slow voice with a long text
begins to sound after this long instead, with a head that leaves the sizes open: a device's patience
ends at 5 s in old firmware."""


@dataclass(frozen=True, slots=True)
class TtsParams:
    """How the sound shall be."""

    kind: str
    voice: str | None = None
    voice_language: str | None = None
    speed: float | None = None


def read_text(query: Mapping[str, str]) -> str:
    """`text`, which must be there. Raises RequestError."""
    text = " ".join(text_of(query, "text").split())
    if not text:
        raise RequestError(
            "text is missing: what shall be said", code="missing_required_parameter", param="text"
        )
    if len(text) > MAX_TEXT_CHARS:
        raise RequestError(
            f"text has {len(text)} characters; at most {MAX_TEXT_CHARS} are taken",
            code="invalid_value",
            param="text",
        )
    return text


def read_tts_params(
    query: Mapping[str, str], engines: EngineSet, *, usual: str = "wav"
) -> TtsParams:
    """`format`, `speaker`, `speed`. Raises RequestError. A voice that is not here is spoken by the
    language's own: a device asks for `CLB`, a voice of WIS, by itself."""
    kind = text_of(query, "format").lower() or usual
    if kind not in FORMATS:
        raise invalid("format", kind, allowed_text([one.upper() for one in FORMATS]))
    speaker, language = _known_voice(text_of(query, "speaker"), engines)
    return TtsParams(kind, speaker, language, number_of(query, "speed", *SPEEDS))


def _known_voice(speaker: str, engines: EngineSet) -> tuple[str | None, str | None]:
    """With its language, which is the text's where nothing else says one."""
    for tts in engines.tts.values():
        for language, names in tts.info.voices.items():
            for name in names:
                if name.lower() == speaker.lower():
                    return name, language
    return None, None


def read_language(query: Mapping[str, str]) -> str | None:
    """`language` without its region; None where it is absent."""
    return text_of(query, "language").lower().replace("_", "-").partition("-")[0] or None


def spoken_language(language: str | None, engines: EngineSet) -> str:
    """That one, or the server's. Raises RequestError unsupported_language."""
    spoken = {code for tts in engines.tts.values() for code in tts.info.voices}
    language = language or engines.default_language
    if language not in spoken:
        raise invalid(
            "language", language, allowed_text(sorted(spoken)), code="unsupported_language"
        )
    return language


def manner(wanted: TtsParams, language: str) -> SpeechFileOptions:
    return SpeechFileOptions(language, wanted.voice, wanted.speed or 1.0)


def head_only(request: aioweb.Request, wanted: TtsParams) -> aioweb.Response | None:
    """The answer to somebody who asks for nothing but the head: nothing is done for it."""
    if request.method != METH_HEAD:
        return None
    return aioweb.Response(headers=_headers(content_type_of(wanted.kind)))


async def speak(
    request: aioweb.Request, sound: SpeechFile, *, is_sized: bool = False
) -> aioweb.StreamResponse:
    """The sound as it is made. Raises EngineError before the first byte; later the connection is
    cut, so that half an answer is not kept as a whole one.

    `is_sized`: a WAV file that is sent with its true sizes, as WIS does, if it is made soon.
    """
    async with aclosing(sound.chunks()) as chunks:
        if not is_sized:
            return await _stream(request, sound, chunks)
        with single_error():
            async with asyncio.TaskGroup() as tasks:
                made, under_way = await _made_soon(chunks, tasks)
                if under_way is None and made:
                    headers = _headers(sound.content_type)
                    return aioweb.Response(body=fix_wav_sizes(made), headers=headers)
                return await _stream(request, sound, _together(made, under_way, chunks))


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


async def _made_soon(
    chunks: AsyncGenerator[bytes, None], tasks: asyncio.TaskGroup
) -> tuple[bytes, asyncio.Task[bytes | None] | None]:
    """What is made within WHOLE_TIMEOUT_S, and the piece that is under way then; None: that is all
    there is."""
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


async def _together(
    made: bytes, under_way: asyncio.Task[bytes | None] | None, chunks: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    if made:
        yield made
    if under_way is not None and (chunk := await under_way) is not None:
        yield chunk
        async for chunk in chunks:
            yield chunk


def _headers(content_type: str) -> dict[str, str]:
    return {"Content-Type": content_type, "Cache-Control": "no-store"}
