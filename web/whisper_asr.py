"""Serves the two operations of whisper-asr-webservice, for Bazarr and its other clients."""

from asyncio import TaskGroup
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Annotated, BinaryIO, Literal

import msgspec
from aiohttp import web as aioweb
from msgspec import UNSET, Meta, Struct, UnsetType

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import RequestError
from core.http.client_connection import while_connected
from core.http.routes import JSON
from core.tasks import run_in_thread
from engines.base import AsrOptions, AsrTask
from media.files.decode import FileDecoder, FileLimits
from media.files.upload_spool import UploadSpool, UploadSpools
from media.pcm import from_bytes
from pipeline.shared.settings import DEFAULT
from pipeline.transcription.recording import RecordingTranscription, Transcriber, Transcript
from web.openai.limits import RequestLimit
from web.openai.transcriptions.fields import File
from web.openai.transcriptions.formats import (
    MODEL_HEADER,
    TEXT,
    VTT,
    VerboseSegment,
    VerboseWord,
    segment_json,
    srt,
    tsv,
    vtt,
    word_json,
)
from web.openai.transcriptions.languages import name_of
from web.openai.transcriptions.multipart import read_form
from web.openai.transcriptions.request import language_of
from web.openai.transcriptions.validation import parse_fields

FILE_FIELD = "audio_file"

DETECTION_S = 30
"Length of the audio, in seconds, from which the language is detected; the same as in Whisper."

_BLOCK_BYTES = 2 * ASR_RATE_HZ
"Number of bytes that are read at once: one second of raw audio."

Output = Literal["txt", "vtt", "srt", "tsv", "json"]


class WhisperServiceForm(Struct, frozen=True, kw_only=True):
    """Body of the request: only the audio. Everything else is in the query."""

    audio_file: File


class WhisperServiceQuery(Struct, frozen=True, kw_only=True):
    """Query of the request. Other parameters that clients send have no effect here."""

    output: Output = "txt"
    task: AsrTask = "transcribe"
    language: str = ""
    initial_prompt: str = ""
    word_timestamps: bool = False
    encode: bool = True
    diarize: Annotated[
        bool,
        Meta(description="true is refused: only `diarized_json` of OpenAI's API has speakers."),
    ] = False


class WhisperServiceSegment(VerboseSegment, frozen=True, kw_only=True):
    """A segment with times in seconds, and its words if `word_timestamps` is true."""

    words: tuple[VerboseWord, ...] | UnsetType = UNSET


class WhisperServiceResponse(Struct, frozen=True):
    """Answer with `output=json`."""

    text: str
    segments: tuple[WhisperServiceSegment, ...]
    language: str
    "ISO 639-1 code."


class DetectedLanguage(Struct, frozen=True):
    """Language of the recording's first 30 s."""

    detected_language: str
    "English name of the language."
    language_code: str
    "ISO 639-1 code."
    confidence: float
    "Probability of the language, 0 to 1."


class WhisperServiceDoor:
    """Handles uploads as `AudioDoor` does, always with the server's default model."""

    def __init__(
        self,
        transcriber: Transcriber,
        spools: UploadSpools,
        decoder: FileDecoder,
        limits: FileLimits,
        limit: RequestLimit,
    ) -> None:
        self._transcriber, self._spools = transcriber, spools
        self._decoder, self._limits, self._request_limit = decoder, limits, limit

    async def transcribe(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /asr`."""
        query = _read_query(request.query)
        async with self._request_limit.take():
            transcript = await while_connected(
                request, self._transcribe_upload(request, query, _options(query))
            )
        body, content_type = _format_transcript(query, transcript)
        headers = {MODEL_HEADER: self._transcriber.name_of(DEFAULT)}
        return aioweb.Response(
            text=body, content_type=content_type, charset="utf-8", headers=headers
        )

    async def detect_language(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /detect-language`."""
        query = _read_query(request.query)
        transcription = self._transcribe_upload(
            request, query, AsrOptions(), max_audio_s=DETECTION_S
        )
        async with self._request_limit.take():
            transcript = await while_connected(request, transcription)
        code = transcript.language
        detected = DetectedLanguage(name_of(code), code, round(transcript.language_probability, 4))
        return aioweb.Response(body=msgspec.json.encode(detected), content_type=JSON)

    async def _transcribe_upload(
        self,
        request: aioweb.Request,
        query: WhisperServiceQuery,
        options: AsrOptions,
        *,
        max_audio_s: float | None = None,
    ) -> Transcript:
        """Reads the form and transcribes its audio. max_audio_s: length in seconds after which the
        rest is ignored; None: all audio counts."""
        self._transcriber.check(DEFAULT, options)
        with self._spools.open() as spool:
            await read_form(request, spool, lambda _: False, file=FILE_FIELD)
            async with self._transcriber.open(DEFAULT, options) as recording, TaskGroup() as tasks:
                tasks.create_task(self._feed(recording, spool, query, max_audio_s))
                return await recording.transcript()

    async def _feed(
        self,
        recording: RecordingTranscription,
        spool: UploadSpool,
        query: WhisperServiceQuery,
        max_audio_s: float | None,
    ) -> None:
        remaining_samples = None if max_audio_s is None else round(max_audio_s * ASR_RATE_HZ)
        try:
            source = await spool.file()
            blocks = (
                self._decoder.blocks(source, ASR_RATE_HZ, self._limits)
                if query.encode
                else _read_raw(source)
            )
            async with aclosing(blocks) as pcm_blocks:
                async for pcm in pcm_blocks:
                    await recording.push(pcm[:remaining_samples])
                    remaining_samples = (
                        None if remaining_samples is None else remaining_samples - len(pcm)
                    )
                    if remaining_samples is not None and remaining_samples <= 0:
                        break
        except RequestError as error:
            error.param = FILE_FIELD
            raise
        recording.end()


async def _read_raw(source: BinaryIO) -> AsyncGenerator[Pcm, None]:
    """Yields the samples of raw audio: 16 kHz, 16 bits, mono.

    Raises RequestError unsupported_audio for an empty file.
    """
    is_empty = True
    while data := await run_in_thread(source.read, _BLOCK_BYTES):
        is_empty = False
        yield from_bytes(data[: len(data) // 2 * 2])
    if is_empty:
        raise RequestError("the file has no audio samples", code="unsupported_audio")


def _read_query(parameters: Mapping[str, str]) -> WhisperServiceQuery:
    """Reads the query. Raises RequestError with the field's name."""
    query = parse_fields(
        [
            (name, text.lower() if name != "initial_prompt" else text)
            for name, text in parameters.items()
        ],
        WhisperServiceQuery,
    )
    if query.diarize:
        raise RequestError(
            "This path does not tell speakers apart. Leave 'diarize' out, or use"
            " /v1/audio/transcriptions with response_format=diarized_json.",
            code="unsupported_parameter",
            param="diarize",
        )
    return query


def _options(query: WhisperServiceQuery) -> AsrOptions:
    has_words = query.word_timestamps and query.output == "json"
    return AsrOptions(
        language=language_of(query.language, "language") if query.language else None,
        task=query.task,
        prompt=query.initial_prompt,
        timestamps="none" if query.output == "txt" else "word" if has_words else "segment",
    )


def _format_transcript(query: WhisperServiceQuery, transcript: Transcript) -> tuple[str, str]:
    """Returns the body and its content type."""
    match query.output:
        case "txt":
            return f"{transcript.text}\n", TEXT
        case "srt":
            return srt(transcript.segments), TEXT
        case "vtt":
            return vtt(transcript.segments), VTT
        case "tsv":
            return tsv(transcript.segments), "text/tab-separated-values"
        case "json":
            return msgspec.json.encode(_json_response(transcript)).decode(), JSON


def _json_response(transcript: Transcript) -> WhisperServiceResponse:
    segments = []
    for index, segment in enumerate(transcript.segments):
        fields = msgspec.structs.asdict(segment_json(index, segment))
        words = tuple(
            word_json(word)
            for word in transcript.words
            if segment.start_ms <= word.start_ms < segment.end_ms
        )
        segments.append(WhisperServiceSegment(**fields, words=words or UNSET))
    return WhisperServiceResponse(transcript.text, tuple(segments), transcript.language)
