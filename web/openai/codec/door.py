"""Serves codecs: sound to codes, and codes to sound. Both are extensions of Earshot, in the style
of OpenAI's audio routes."""

import asyncio
from contextlib import aclosing
from typing import Annotated

import msgspec
import numpy as np
from aiohttp import web as aioweb
from msgspec import Meta, Struct

from core.audio import Pcm
from core.errors import NotFound, RequestError
from core.http.client_connection import while_connected
from core.http.routes import JSON, Route
from engines.base.codec import CodecInfo, CodecItem, Codes
from engines.codec.items import check_codes, codes_from_bytes, codes_to_bytes
from media.files.decode import FileDecoder, FileLimits
from media.files.encode import WavEncoder, fix_wav_sizes
from media.files.upload_spool import UploadSpool, UploadSpools
from pipeline.shared.settings import DEFAULT
from serving.codec.model import Codecs, ServedCodec
from web.openai.json_body import decode_json, read_json
from web.openai.limits import RequestLimits
from web.openai.transcriptions.fields import File
from web.openai.transcriptions.multipart import (
    FILE_FIELD,
    FORM,
    MAX_OTHER_FIELDS_BYTES,
    read_form,
)

CODEC_UPLOADS = 4
"Most recordings that are decoded at once."

MAX_AUDIO_S = 120
"""Longest sound of one request, in seconds. A processor of two cores computes it in less than the
minute that clients and proxies wait; `earshot audio tokenize` takes files of any length."""

MAX_CODES_BYTES = 4 * 1024 * 1024
"Largest body with codes: 120 s of EnCodec in 16 codebooks are 144 000 numbers, less than 1 MB."

DEFAULT_CODEBOOKS = 8
"Number of codebooks if a request names none: as many as most models that speak in codes use."


class TokensForm(Struct, frozen=True, kw_only=True):
    """A recording whose codes are asked for."""

    file: File
    model: Annotated[
        str, Meta(description="Name of a codec from `GET /v1/models`; none: the first.")
    ] = DEFAULT
    codebooks: Annotated[
        int, Meta(description="Number of codebooks: 2, 4, 8 or 16, if the codec has so many.")
    ] = DEFAULT_CODEBOOKS


class AudioTokens(Struct, frozen=True, kw_only=True):
    """The codes of a recording."""

    model: str
    "Name of the codec, which must be named to decode them."
    shape: tuple[int, int, int]
    "1, number of codebooks, number of frames."
    frames_per_s: float
    "Number of frames of a second of sound."
    codes: list[list[list[int]]]
    "All frames of each codebook, the coarsest codebook first."


class DetokenizeFields(Struct, frozen=True, kw_only=True):
    """Codes whose sound is asked for."""

    codes: list[list[list[int]]]
    "Codes of the shape (1, codebooks, frames), as `POST /v1/audio/tokens` returns them."
    model: str = DEFAULT
    "Name of the codec that made the codes; none: the first."


class CodecDoor:
    """Handles the requests of `/v1/audio/tokens` and `/v1/audio/detokenize`."""

    def __init__(
        self, codecs: Codecs, spools: UploadSpools, decoder: FileDecoder, limits: RequestLimits
    ) -> None:
        """`limits`: making codes counts as a transcription, making sound as speech."""
        self._codecs, self._spools, self._decoder = codecs, spools, decoder
        self._limits = limits
        self._file_limits = FileLimits(spools.limits.max_bytes, MAX_AUDIO_S)

    @property
    def max_body_bytes(self) -> int:
        """Largest request in bytes: the largest file, and room for the other fields."""
        return self._file_limits.max_bytes + MAX_OTHER_FIELDS_BYTES

    async def tokens(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /v1/audio/tokens`. Raises RequestError, OverloadedError, EngineError."""
        return await while_connected(request, self._tokens(request))

    async def detokenize(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /v1/audio/detokenize`. Raises RequestError, OverloadedError,
        EngineError."""
        fields = decode_json(await read_json(request), DetokenizeFields)
        return await while_connected(request, self._detokenize(fields))

    async def _tokens(self, request: aioweb.Request) -> aioweb.Response:
        known = ("model", "codebooks")
        with self._spools.open() as spool:
            async with self._limits.transcriptions.take():
                form = await read_form(request, spool, lambda name: name in known)
                if form.other_fields:
                    allowed = ", ".join((FILE_FIELD, *known))
                    name = form.other_fields[0][0][:64]
                    message = f"Unknown field {name!r}; allowed: {allowed}."
                    raise RequestError(message, code="unknown_parameter", param=name)
                fields = dict(form.fields)
                codec = self._codec(fields.get("model", DEFAULT))
                info = codec.info
                codebooks = _codebooks(fields.get("codebooks", ""), info)
                pcm = await self._decode(spool, info.rate_hz)
                item = CodecItem("encode", pcm.astype("<i2", copy=False).tobytes(), codebooks)
                codes = codes_from_bytes(await codec.convert(item), codebooks)
        return await asyncio.to_thread(_tokens_answer, codec.offer.name, info, codes)

    async def _detokenize(self, fields: DetokenizeFields) -> aioweb.Response:
        codec = self._codec(fields.model)
        info = codec.info
        async with self._limits.speech.take():
            codes = await asyncio.to_thread(_checked_codes, fields.codes, info)
            item = CodecItem("decode", codes_to_bytes(codes), codes.shape[1])
            data = await codec.convert(item)
        encoder = WavEncoder(info.rate_hz)
        wav = fix_wav_sizes(encoder.push(np.frombuffer(data, "<i2")) + encoder.finish())
        return aioweb.Response(body=wav, content_type=encoder.content_type)

    def _codec(self, name: str) -> ServedCodec:
        """Returns the codec that a request names. Raises NotFound model_not_found."""
        codec = self._codecs.get(name)
        if codec is None and name in ("", DEFAULT):
            first = next(iter(self._codecs), None)
            codec = None if first is None else self._codecs.get(first)
        if codec is None:
            names = ", ".join(self._codecs)
            allowed = (
                f"Allowed: {names}."
                if names
                else "No codec is installed; `earshot models pull mimi` fetches one."
            )
            message = f"Unknown model {name[:64]!r}. {allowed}"
            raise NotFound(message, code="model_not_found", param="model")
        return codec

    async def _decode(self, spool: UploadSpool, rate_hz: int) -> Pcm:
        """Returns the sound of the upload. Raises PayloadTooLarge if it is longer than
        MAX_AUDIO_S, RequestError if it is no audio."""
        try:
            blocks = self._decoder.blocks(await spool.file(), rate_hz, self._file_limits)
            async with aclosing(blocks):
                return np.concatenate([block async for block in blocks])
        except RequestError as error:
            error.param = FILE_FIELD
            raise


def _codebooks(text: str, info: CodecInfo) -> int:
    """Returns the number of codebooks that a form asks for. Raises RequestError."""
    number = int(text) if text.isdecimal() and len(text) < 4 else None
    if not text:
        number = DEFAULT_CODEBOOKS if DEFAULT_CODEBOOKS in info.codebooks else info.codebooks[-1]
    if number not in info.codebooks:
        raise _wrong_codebooks(repr(text[:16]), info, "codebooks")
    return number


def _wrong_codebooks(found: str, info: CodecInfo, param: str) -> RequestError:
    allowed = ", ".join(map(str, info.codebooks))
    message = f"Invalid number of codebooks: {found}. Allowed with {info.model}: {allowed}."
    return RequestError(message, code="invalid_value", param=param)


def _checked_codes(codes: list[list[list[int]]], info: CodecInfo) -> Codes:
    """Returns the codes of a request. Raises RequestError for another shape, for a code that the
    codec does not have, and for too many frames."""
    if len(codes) != 1:
        message = (
            f"'codes' holds {len(codes)} clips. Allowed: one, of the shape (1, codebooks, frames)."
        )
        raise RequestError(message, code="invalid_value", param="codes")
    lengths = {len(frames) for frames in codes[0]}
    if len(codes[0]) not in info.codebooks:
        raise _wrong_codebooks(str(len(codes[0])), info, "codes")
    if len(lengths) != 1 or 0 in lengths:
        message = "All codebooks must have the same number of frames, at least one."
        raise RequestError(message, code="invalid_value", param="codes")
    (frames,) = lengths
    if frames * info.frame_samples > MAX_AUDIO_S * info.rate_hz:
        most = MAX_AUDIO_S * info.rate_hz // info.frame_samples
        message = f"{frames} frames are too many. Allowed: {most}, which are {MAX_AUDIO_S} s."
        raise RequestError(message, code="invalid_value", param="codes")
    try:
        found = np.array(codes, np.int16)
    except OverflowError:
        found = np.full((1, 1, 1), -1, np.int16)
    check_codes(found, info.codebook_size)
    return found


def _tokens_answer(model: str, info: CodecInfo, codes: Codes) -> aioweb.Response:
    _, codebooks, frames = codes.shape
    answer = AudioTokens(
        model=model,
        shape=(1, codebooks, frames),
        frames_per_s=info.rate_hz / info.frame_samples,
        codes=codes.tolist(),
    )
    return aioweb.Response(body=msgspec.json.encode(answer), content_type=JSON)


_TAG = "openai"
_CODES = (
    *("draining", "engine_busy", "engine_crashed", "engine_failed", "engine_missing"),
    *("engine_timeout", "invalid_value", "missing_required_parameter", "model_not_found"),
    *("server_full", "too_large", "too_many_requests", "unsupported_media_type"),
)


def codec_routes(door: CodecDoor) -> tuple[Route, ...]:
    """Returns the routes."""
    return (
        Route(
            "POST",
            "/v1/audio/tokens",
            door.tokens,
            "Turn a recording into the codes of a codec.",
            _TAG,
            request=TokensForm,
            request_content_types=(FORM,),
            responses={200: AudioTokens},
            error_codes=(
                *_CODES,
                *("audio_too_large", "audio_too_long", "invalid_form", "unknown_parameter"),
                "unsupported_audio",
            ),
            max_body_bytes=door.max_body_bytes,
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/audio/detokenize",
            door.detokenize,
            "Turn codes of a codec into sound, as a WAV file.",
            _TAG,
            request=DetokenizeFields,
            response_content_type="audio/wav",
            error_codes=(*_CODES, "invalid_json"),
            max_body_bytes=MAX_CODES_BYTES,
            scope="talk",
        ),
    )
