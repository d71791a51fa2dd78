"""Uploads: a device's speech is recognised as it arrives, files in other containers when they are
complete."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from aiohttp import BodyPartReader
from aiohttp import web as aioweb
from aiohttp.http_exceptions import HttpProcessingError

from core.errors import PayloadTooLarge, RequestError
from core.http.client_connection import ClientDisconnected
from core.http.routes import BROKEN_FORM
from core.tasks import run_in_thread
from devices.willow.wis.asr import WisTranscription
from devices.willow.wis.params import allowed_text, invalid, text_of, whole_of
from media.codecs.amr import AmrDecoder
from media.files.decode import FORMATS, FileDecoder, FileLimits
from media.files.raw import BITS, AudioByteDecoder, RawDecoder, UnsupportedWavError, WavDecoder
from media.files.upload_spool import UploadSpool

FORM = "multipart/form-data"
"Content type of a form with a file."

FILE = "audio_file"
"Name of the part of the form that holds the recording."

RATES_HZ = range(8000, 48_001)
"Allowed sample rates of plain samples."

CHANNELS = (1, 2)
"Allowed numbers of channels of plain samples."

CODECS = ("pcm", *dict.fromkeys(FORMATS.split(",")))
"Allowed values of `x-audio-codec`: plain samples, and the containers that FFmpeg decodes."

MAX_PARTS = 100
"Limit of the parts of a form, of which one is used."

PIECE_BYTES = 4 * 1024
"""Bytes that are decoded at once, in a thread. The limit of a recording is checked between these
pieces. One byte can be a whole frame of AMR, so a piece can hold 82 s of silence."""

_CHUNK_BYTES = 64 * 1024
_AMR = ("amr", "amrnb", "amrwb")


@dataclass(frozen=True, slots=True)
class WillowAudioFormat:
    """Audio format in the four headers of `POST /api/willow`."""

    codec: str
    rate_hz: int
    bits: int
    channels: int

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "WillowAudioFormat":
        """Reads the headers; those absent or empty have defaults. Raises RequestError with header
        and allowed values."""
        codec = text_of(headers, "x-audio-codec").lower() or "pcm"
        if codec not in CODECS:
            raise invalid("x-audio-codec", codec, allowed_text(CODECS))
        return cls(
            codec,
            whole_of(headers, "x-audio-sample-rate", RATES_HZ) or 16_000,
            whole_of(headers, "x-audio-bits", BITS) or 16,
            whole_of(headers, "x-audio-channel", CHANNELS) or 1,
        )

    def decoder(self) -> AudioByteDecoder | None:
        """Returns a decoder of pieces; None: the whole file is needed. Containers know their rate
        themselves."""
        if self.codec == "pcm":
            return RawDecoder(self.rate_hz, self.bits, self.channels)
        if self.codec == "wav":
            return WavDecoder()
        return AmrDecoder() if self.codec in _AMR else None


async def transcribe_stream(
    body: AsyncGenerator[bytes, None],
    audio_format: WillowAudioFormat,
    transcription: WisTranscription,
    spool: UploadSpool,
) -> bool:
    """Recognises the body as it arrives. Returns False if it is spooled, for `transcribe_file`.

    Raises RequestError unsupported_audio, PayloadTooLarge, OverloadedError, ClientDisconnected.
    """
    decoder = audio_format.decoder()
    taken = b""
    async with aclosing(body):
        if decoder is not None:
            try:
                async for data in body:
                    await transcription.push(await run_in_thread(decoder.push, data))
                await transcription.push(await run_in_thread(decoder.flush))
                if not transcription.samples:
                    raise RequestError("the body has no audio samples", code="unsupported_audio")
                return True
            except UnsupportedWavError:  # only FFmpeg reads it; its bytes are kept
                assert isinstance(decoder, WavDecoder)
                taken = bytes(decoder.consumed)
        await spool.write(taken)
        async for data in body:
            await spool.write(data)
    return False


async def transcribe_file(
    transcription: WisTranscription, spool: UploadSpool, decoder: FileDecoder
) -> None:
    """Decodes the file in the spool and recognises it.

    Raises RequestError unsupported_audio, PayloadTooLarge, OverloadedError and EngineCrashed.
    """
    limits = FileLimits(max_duration_s=transcription.max_audio_s)
    async with aclosing(decoder.blocks(await spool.file(), limits=limits)) as decoded:
        async for pcm in decoded:
            await transcription.push(pcm)


async def body_of(request: aioweb.Request, max_bytes: int) -> AsyncGenerator[bytes, None]:
    """Yields the request's body as it arrives, in pieces of at most PIECE_BYTES.

    Raises PayloadTooLarge, RequestError upload_stalled, ClientDisconnected.
    """
    total = 0
    while data := await _piece(request):
        total += len(data)
        if total > max_bytes:
            raise PayloadTooLarge(
                f"an upload of more than {max_bytes} bytes, the limit", code="audio_too_large"
            )
        for start in range(0, len(data), PIECE_BYTES):
            yield data[start : start + PIECE_BYTES]


async def _piece(request: aioweb.Request) -> bytes:
    try:
        return await request.content.readany()
    except ConnectionError as exc:
        raise ClientDisconnected from exc
    except aioweb.RequestPayloadError as exc:
        if request.transport is None:
            raise ClientDisconnected from exc
        raise RequestError("the body cannot be read", code="invalid_body") from exc


async def spool_form(request: aioweb.Request, spool: UploadSpool, max_bytes: int) -> None:
    """Writes the part `audio_file` of a form into the spool. Other parts are ignored.

    max_bytes: limit of all parts together.
    Raises RequestError unsupported_media_type, invalid_form, missing_required_parameter and
    upload_stalled; PayloadTooLarge, OverloadedError, ClientDisconnected.
    """
    if request.content_type != FORM:
        raise RequestError(
            f"the body must be {FORM} with the part {FILE}", code="unsupported_media_type"
        )
    has_file = False
    try:
        async for part in _parts(request):
            is_file = part.name == FILE and not has_file
            has_file = has_file or is_file
            while chunk := await part.read_chunk(_CHUNK_BYTES):
                if request.content.total_bytes > max_bytes:
                    raise PayloadTooLarge(f"a form of more than {max_bytes} bytes, the limit")
                if is_file:
                    await spool.write(chunk)
    except (*BROKEN_FORM, HttpProcessingError, aioweb.RequestPayloadError) as exc:
        raise RequestError("the form cannot be read", code="invalid_form") from exc
    except ConnectionError as exc:
        raise ClientDisconnected from exc
    if not has_file:
        raise RequestError(
            f"the form has no part {FILE}: the recording, in any common format",
            code="missing_required_parameter",
            param=FILE,
        )


async def _parts(request: aioweb.Request) -> AsyncIterator[BodyPartReader]:
    form = await request.multipart()
    for count in range(MAX_PARTS + 1):
        part = await form.next()
        if part is None:
            return
        if count == MAX_PARTS:
            raise PayloadTooLarge(f"the form has more than {MAX_PARTS} parts, the limit")
        if not isinstance(part, BodyPartReader):
            raise RequestError("a part of the form is a form of its own", code="invalid_form")
        yield part
