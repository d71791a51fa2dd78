"""Serves transcriptions of OpenAI's REST API: a client sends a form with a recording and gets a
transcript."""

import os
from asyncio import TaskGroup
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from aiohttp import FormData
from aiohttp import web as aioweb
from msgspec import Struct

from core.audio import ASR_RATE_HZ, samples_to_ms
from core.errors import RequestError
from core.http.client_connection import while_connected
from media.files.decode import FileDecoder, FileLimits
from media.files.upload_spool import UploadSpool, UploadSpools
from pipeline.transcription.recording import RecordingTranscription, Transcriber
from serving.remote.models import RemoteModel, RemoteModels, RemotePath
from serving.speaker.recognition import SpeakerRecognition
from web.openai.limits import RequestLimit
from web.openai.models import ModelCardSource, model, model_list
from web.openai.remote import send_answer
from web.openai.transcriptions.fields import TranscriptionFields, TranslationFields
from web.openai.transcriptions.formats import MODEL_HEADER, answer
from web.openai.transcriptions.multipart import (
    FILE_FIELD,
    MAX_OTHER_FIELDS_BYTES,
    AudioForm,
    read_form,
)
from web.openai.transcriptions.request import TranscriptionRequest, transcription, translation
from web.openai.transcriptions.speakers import SpeakersOfRequests
from web.openai.transcriptions.sse import stream_transcription
from web.openai.transcriptions.validation import is_known
from web.whisper_asr import WhisperServiceDoor

PADDING_HEADER = "X-Earshot-Padding"
"Header with the padding that the model got, if the requested padding does not suit the model."

FILE_NAME = "audio"
"Name for another server of a file that came without one."

FIELD_BY_OPTION = {
    "languages": "languages[]",
    "timestamps": "timestamp_granularities[]",
    "token_logprobs": "include[]",
}
"Decoding option -> form field that sets it, where the names differ."


class AudioDoor:
    """Handles uploads of recordings.

    An upload waits in `spools` for its turn. A client that disconnects frees the upload and its
    place in the queue.
    """

    def __init__(
        self,
        transcriber: Transcriber,
        models: ModelCardSource,
        spools: UploadSpools,
        decoder: FileDecoder,
        limit: RequestLimit,
        remote: RemoteModels,
        recognition: SpeakerRecognition | None,
        *,
        max_duration_s: float = 2 * 3600,
    ) -> None:
        """Takes the parts that handle an upload.

        remote: models of other servers, which come before our own of the same name.
        recognition: recognises speakers by their voices; None: not at all.
        max_duration_s: longest recording that is accepted, in seconds.
        """
        self._transcriber, self._models, self._spools = transcriber, models, spools
        self._decoder, self._limit, self._remote = decoder, limit, remote
        self._speakers = SpeakersOfRequests(recognition, spools, decoder)
        self._limits = FileLimits(spools.limits.max_bytes, max_duration_s)
        self.whisper_service = WhisperServiceDoor(transcriber, spools, decoder, self._limits, limit)

    @property
    def max_body_bytes(self) -> int:
        """Largest request in bytes: the largest file, and room for the other fields."""
        return self._limits.max_bytes + MAX_OTHER_FIELDS_BYTES

    async def transcriptions(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `POST /v1/audio/transcriptions`."""
        return await while_connected(
            request,
            self._handle(request, "/audio/transcriptions", TranscriptionFields, transcription),
        )

    async def translations(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `POST /v1/audio/translations`."""
        return await while_connected(
            request, self._handle(request, "/audio/translations", TranslationFields, translation)
        )

    async def models(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v1/models`."""
        return model_list(self._models)

    async def model(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v1/models/{model}`."""
        return model(self._models, request.match_info["model"])

    async def _handle(
        self,
        request: aioweb.Request,
        path: RemotePath,
        form_type: type[Struct],
        parse: Callable[[list[tuple[str, str]]], TranscriptionRequest],
    ) -> aioweb.StreamResponse:
        """Answers one request. path: path of the operation on another server. form_type: known
        fields of the form. parse: turns them into a request."""
        with self._spools.open() as spool:
            async with self._limit.take():
                form = await read_form(request, spool, partial(is_known, struct_type=form_type))
                remote = self._remote.get("asr", dict(form.fields).get("model", ""))
                if remote is None:
                    return await self._transcribe(request, spool, parse(form.fields))
            # From here on the places of the other server count, and not those of ours.
            return await _send_on(request, remote, path, form, spool)

    async def _transcribe(
        self, request: aioweb.Request, spool: UploadSpool, job: TranscriptionRequest
    ) -> aioweb.StreamResponse:
        is_diarized = job.response_format == "diarized_json"
        if is_diarized and not self._transcriber.has_word_times(job.model):
            # Then each segment of the recogniser counts as one speaker's.
            job = replace(job, options=replace(job.options, timestamps="segment"))
        self._check(job)
        used_padding = self._transcriber.fallback_padding(job.model, job.options)
        job = replace(job, used_padding=used_padding)
        headers = self._headers(job)
        async with (
            self._speakers.open(job) as speakers,
            self._transcriber.open(
                job.model, job.options, on_segment=speakers.take if speakers else None
            ) as recording,
        ):
            feed = self._feed(recording, spool)
            if job.is_streamed:
                return await stream_transcription(request, job, recording, feed, headers, speakers)
            async with TaskGroup() as tasks:
                tasks.create_task(feed)
                transcript = await recording.transcript()
            times = await speakers.finish() if speakers else None
        body, content_type = answer(job, transcript, times)
        return aioweb.Response(
            body=body, content_type=content_type, charset="utf-8", headers=headers
        )

    def _headers(self, job: TranscriptionRequest) -> dict[str, str]:
        """Returns headers with the model and the padding, because subtitles and plain text have no
        field for them."""
        headers = {MODEL_HEADER: self._transcriber.name_of(job.model)}
        if job.used_padding:
            headers[PADDING_HEADER] = job.used_padding
        return headers

    def _check(self, job: TranscriptionRequest) -> None:
        """Raises NotFound model_not_found, or RequestError for options that the model does not
        have."""
        try:
            self._transcriber.check(job.model, job.options)
        except RequestError as error:
            error.param = FIELD_BY_OPTION.get(error.param or "", error.param)
            raise

    async def _feed(self, recording: RecordingTranscription, spool: UploadSpool) -> float:
        """Decodes the upload, and pushes its samples into the recording. Returns its length in
        ms."""
        samples = 0
        try:
            blocks = self._decoder.blocks(await spool.file(), ASR_RATE_HZ, self._limits)
            async with aclosing(blocks):
                async for pcm in blocks:
                    samples += len(pcm)
                    await recording.push(pcm)
        except RequestError as error:
            error.param = FILE_FIELD
            raise
        recording.end()
        return samples_to_ms(samples, ASR_RATE_HZ)


async def _send_on(
    request: aioweb.Request,
    remote: RemoteModel,
    path: RemotePath,
    form: AudioForm,
    spool: UploadSpool,
) -> aioweb.StreamResponse:
    """Sends the form on to another server, with all of its fields, and the answer back."""
    file = await spool.file()
    fields = [*form.fields, *form.other_fields]

    def form_for(model: str) -> FormData:
        data = FormData()
        for name, text in fields:
            data.add_field(name, model if name == "model" else text)
        # aiohttp closes the file that it has sent, and a second try needs the upload again.
        copy = os.fdopen(os.dup(file.fileno()), "rb")
        copy.seek(0)
        data.add_field(
            FILE_FIELD,
            copy,
            filename=form.file_name or FILE_NAME,
            content_type=form.file_type or None,
        )
        return data

    private_texts = [text for name, text in fields if name != "model"]
    return await send_answer(request, remote.stream(path, form_for, private_texts))
