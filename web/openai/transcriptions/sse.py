"""Sends a transcription as server-sent events: a delta for each segment of the recording."""

from asyncio import TaskGroup
from collections.abc import Coroutine, Mapping

import msgspec
from aiohttp import web as aioweb
from msgspec import UNSET, Struct, UnsetType

from core.errors import EarshotError, RequestError, first_error
from core.http.client_connection import ClientDisconnected
from core.http.streaming import send
from engines.base import AsrPadding, Segment, TokenLogprob, Word
from pipeline.transcription.diarisation.recording import RecordingSpeakers
from pipeline.transcription.diarisation.segments import SpeakerTimes
from pipeline.transcription.recording import RecordingTranscription
from pipeline.transcription.stitching import join_texts
from web.openai.transcriptions.formats import (
    DiarizedSegment,
    DurationUsage,
    LanguageCode,
    Logprob,
    detected_languages,
    diarized_segments,
    logprobs,
    usage,
)
from web.openai.transcriptions.request import TranscriptionRequest
from web.openapi import ErrorBody, ErrorDetail

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would hold events back
}


class TranscriptTextDelta(Struct, frozen=True, tag="transcript.text.delta"):
    """The next piece of the transcript."""

    delta: str
    logprobs: tuple[Logprob, ...] | UnsetType = UNSET


class TranscriptTextDone(Struct, frozen=True, tag="transcript.text.done"):
    """The whole transcript."""

    text: str
    usage: DurationUsage
    logprobs: tuple[Logprob, ...] | UnsetType = UNSET
    languages: tuple[LanguageCode, ...] | UnsetType = UNSET
    padding: AsrPadding | UnsetType = UNSET
    """Padding that the model got, if the requested padding does not suit the model. Extension of
    Earshot."""


class SseResponse:
    """A response of server-sent events.

    It begins with the first event, so an error before that still becomes a status.
    """

    def __init__(self, request: aioweb.Request, headers: Mapping[str, str] | None = None) -> None:
        self._request = request
        self._response = aioweb.StreamResponse(headers={**HEADERS, **(headers or {})})

    @property
    def has_begun(self) -> bool:
        """True once an event was sent: an error can no longer become a status."""
        return self._response.prepared

    async def send(self, event: Struct) -> None:
        """Sends one event. Raises ClientDisconnected."""
        await self._write(msgspec.json.encode(event))

    async def send_text(self, data: str, name: str = "") -> None:
        """Sends the data of one event, with the event's name if it has one. Raises
        ClientDisconnected."""
        await self._write(data.encode("utf-8", "replace"), name)

    def set_headers(self, headers: Mapping[str, str]) -> None:
        """Adds headers. Without effect once the response has begun."""
        self._response.headers.update(headers)

    async def end(self, *, with_done_line: bool = True) -> aioweb.StreamResponse:
        """Ends the response. with_done_line: whether the line `data: [DONE]` closes it."""
        if with_done_line:
            await self._write(b"[DONE]")
        await self._response.write_eof()
        return self._response

    async def _write(self, data: bytes, name: str = "") -> None:
        try:
            if not self._response.prepared:
                await self._response.prepare(self._request)
        except ConnectionError as exc:
            raise ClientDisconnected from exc
        head = f"event: {name}\n".encode() if name else b""
        await send(self._response, head + b"data: " + data + b"\n\n")


async def stream_transcription(
    request: aioweb.Request,
    job: TranscriptionRequest,
    recording: RecordingTranscription,
    feed: Coroutine[None, None, float],
    headers: Mapping[str, str],
    speakers: RecordingSpeakers | None = None,
) -> aioweb.StreamResponse:
    """Answers with the text of each segment as soon as it is known, and at the end with the
    segments of each speaker: the speakers are certain only when all voices have been compared.

    feed: pushes the audio into `recording` and returns its length in ms. speakers: those of the
    recording; None if they are not asked for.
    """
    events = SseResponse(request, headers)
    try:
        async with TaskGroup() as tasks:
            feed_task = tasks.create_task(feed)
            transcript = await _send_segments(events, job, recording)
            audio_ms = await feed_task
            if speakers is not None:
                for segment in transcript.diarized(await speakers.finish()):
                    await events.send(segment)
            await events.send(transcript.done(job, audio_ms))
    except* EarshotError as group:
        if not events.has_begun:
            raise
        await events.send(error_event(group))
    return await events.end()


class _SentTranscript:
    """The transcript that has been sent so far."""

    def __init__(self) -> None:
        self.text, self.language = "", ""
        self.tokens: list[TokenLogprob] = []
        self.segments: list[Segment] = []
        self.words: list[Word] = []

    def add(self, text: str, language: str) -> str:
        """Adds the text of a segment and returns the delta: the text, after a space if one is
        needed. language: language of the segment. The first known language is that of the
        transcript."""
        self.language = self.language or language
        previous_text, self.text = self.text, join_texts([self.text, text])
        return self.text[len(previous_text) :]

    def diarized(self, times: SpeakerTimes) -> tuple[DiarizedSegment, ...]:
        return diarized_segments(self.segments, self.words, times)

    def done(self, job: TranscriptionRequest, audio_ms: float) -> TranscriptTextDone:
        return TranscriptTextDone(
            self.text,
            usage(audio_ms),
            logprobs(self.tokens) if job.has_logprobs else UNSET,
            detected_languages(job, self.language),
            job.used_padding or UNSET,
        )


async def _send_segments(
    events: SseResponse, job: TranscriptionRequest, recording: RecordingTranscription
) -> _SentTranscript:
    transcript = _SentTranscript()
    async for result in recording.segment_results():
        if result.text:
            delta = transcript.add(result.text, result.language)
            transcript.tokens += result.tokens
            transcript.segments += result.segments
            transcript.words += result.words
            await events.send(
                TranscriptTextDelta(delta, logprobs(result.tokens) if job.has_logprobs else UNSET)
            )
    return transcript


def error_event(error: BaseException) -> ErrorBody:
    """Returns the body of the event for an error. For a group, the first error in it counts."""
    error = first_error(error)
    is_client_error = isinstance(error, RequestError)
    return ErrorBody(
        ErrorDetail(
            message=str(error),
            type="invalid_request_error" if is_client_error else "server_error",
            code=getattr(error, "code", EarshotError.code),
            param=getattr(error, "param", None),
        )
    )
