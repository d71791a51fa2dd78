"""Serves `POST /audio_completion` of Indri's server: a recording and a text in, speech out."""

from asyncio import get_running_loop
from typing import Literal

from aiohttp import web as aioweb
from msgspec import Struct

from core.errors import RequestError
from core.http.client_connection import while_connected
from core.http.routes import Route
from media.files.decode import FileDecoder
from media.files.upload_spool import UploadSpools
from pipeline.speech.file import SpeechFiles
from pipeline.speech.own_voices import (
    CONSENT,
    RECORDING,
    OwnVoices,
    check_consent,
    decode_recording,
    enabled,
)
from pipeline.speech.synthesis import SpeechPlan
from web.indri import METRICS_HEADER, timed_file
from web.openai.limits import RequestLimit
from web.openai.speech.door import RATE_HZ
from web.openai.speech.fields import check_length
from web.openai.speech.own_voices import MAX_BODY_BYTES
from web.openai.transcriptions.fields import File
from web.openai.transcriptions.multipart import FILE_FIELD, FORM, read_form

FORMAT: Literal["mp3"] = "mp3"


class IndriCompletionForm(Struct, frozen=True, kw_only=True):
    """A recording of 3 to 15 s in whose voice a text is spoken."""

    file: File


class IndriCompletionDoor:
    """Handles requests with a recording, of which nothing is kept."""

    def __init__(
        self,
        voices: OwnVoices | None,
        files: SpeechFiles,
        spools: UploadSpools,
        decoder: FileDecoder,
        limit: RequestLimit,
    ) -> None:
        """`voices`: None if own voices are off."""
        self._voices, self._files = voices, files
        self._spools, self._decoder, self._limit = spools, decoder, limit

    async def complete(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /audio_completion`.

        Raises EngineMissing while own voices are off; RequestError, OverloadedError, EngineError.
        """
        voices, text = enabled(self._voices), request.query.get("text", "")
        check_length(text, "text")
        check_consent(request.query.get("consent", ""))
        async with self._limit.take():
            return await while_connected(request, self._complete(request, voices, text))

    async def _complete(
        self, request: aioweb.Request, voices: OwnVoices, text: str
    ) -> aioweb.Response:
        with self._spools.open() as spool:
            await read_form(request, spool, lambda _: False)
            began_s = get_running_loop().time()
            try:
                pcm = await decode_recording(self._decoder, spool, voices.rate_hz)
                async with voices.once(pcm) as tts:
                    plan = SpeechPlan(tts, voices.languages[0], RECORDING)
                    file = self._files.planned_file(text, plan, FORMAT, RATE_HZ)
                    return await timed_file(text, file, began_s)
            except RequestError as error:
                error.param = error.param or FILE_FIELD
                raise


def indri_completion_route(door: IndriCompletionDoor) -> Route:
    """Returns the route. A key that may talk may make voices of its own, so the scope is the
    same."""
    return Route(
        "POST",
        "/audio_completion",
        door.complete,
        "Speak a text in the voice of a recording of 3 to 15 s, for clients of Indri's server."
        " Nothing of the recording is kept.",
        "openai",
        request=IndriCompletionForm,
        request_content_types=(FORM,),
        max_body_bytes=MAX_BODY_BYTES,
        query={
            "text": "Text to speak, at most 4096 characters.",
            "consent": f"This text, as the person agreed to it: {CONSENT}",
        },
        response_content_type="audio/mpeg",
        response_headers={METRICS_HEADER: "Times in seconds and counts, as a JSON object."},
        error_codes=(
            *("client_gone", "consent_required", "draining", "engine_busy", "engine_crashed"),
            *("engine_failed", "engine_missing", "engine_timeout", "invalid_form"),
            *("empty_string", "invalid_value", "string_above_max_length", "too_many_requests"),
            *("unsuitable_recording", "unsupported_audio", "unsupported_media_type"),
            "upload_stalled",
        ),
        scope="talk",
    )
