"""Makes and deletes own voices, in the form of OpenAI's API for custom voices.

OpenAI wants the id of a recording in which a person reads a text of consent. Here the text itself
is sent: the server cannot know whose voice a recording has.
"""

from typing import Annotated, Literal

import msgspec
from aiohttp import web as aioweb
from msgspec import Meta, Struct

from core.errors import RequestError
from core.http.client_connection import while_connected
from core.http.routes import JSON, Route
from media.files.decode import FileDecoder
from media.files.upload_spool import UploadSpools
from pipeline.speech.own_voices import (
    CONSENT,
    OWN_VOICES,
    OwnVoice,
    OwnVoiceRequest,
    OwnVoices,
    enabled,
    make_voice,
)
from pipeline.speech.voice_reference import MAX_S, MIN_S
from pipeline.speech.voices import VOICES_PATH
from web.openai.transcriptions.fields import File
from web.openai.transcriptions.languages import code_of
from web.openai.transcriptions.multipart import FORM, read_form

SAMPLE_FIELD = "audio_sample"

VOICE_UPLOADS = 1
"Most recordings of voices that are decoded at once. Making a voice is rare."

MAX_BODY_BYTES = 16 * 1024 * 1024
"Largest request: 15 s of uncompressed stereo at 96 kHz have 6 MB."

_FIELDS = ("name", "consent", "language", "type")
_TAG = "openai"


class OwnVoiceForm(Struct, frozen=True, kw_only=True):
    """A recording of which a voice is made."""

    name: Annotated[str, Meta(description="1 to 32 letters of English, digits, _ and -.")]
    audio_sample: File
    consent: Annotated[str, Meta(description=f"This text, as the person agreed to it: {CONSENT}")]
    language: Annotated[
        str, Meta(description="ISO 639-1 code or English name. Default: the engine's.")
    ] = ""
    type: Annotated[Literal["audio_sample"], Meta(description="As in OpenAI's API.")] = (
        "audio_sample"
    )


class OwnVoiceView(Struct, frozen=True):
    """An own voice of the caller's key."""

    id: str
    "Value for the field `voice` of all doors: `own/anna`."
    name: str
    language: str
    "ISO 639-1 code."
    consent: str
    "Text to which the person agreed."
    created_at: int
    "Time of the consent, in seconds since 1970."
    object: Literal["audio.voice"] = "audio.voice"
    type: Literal["audio_sample"] = "audio_sample"


class OwnVoiceDeleted(Struct, frozen=True):
    """A voice that was deleted."""

    id: str
    deleted: bool = True
    object: Literal["audio.voice"] = "audio.voice"


class OwnVoicesView(Struct, frozen=True):
    """The caller's voices, and what a new one needs."""

    voices: tuple[OwnVoiceView, ...]
    languages: tuple[str, ...]
    "ISO 639-1 codes of the languages that a voice may speak."
    consent: str
    "Text to which the person must agree."
    min_recording_s: int
    max_recording_s: int


class OwnVoicesDoor:
    """HTTP handlers for the voices of the caller's key."""

    def __init__(
        self, voices: OwnVoices | None, spools: UploadSpools, decoder: FileDecoder
    ) -> None:
        """`voices`: None if own voices are off."""
        self._voices, self._spools, self._decoder = voices, spools, decoder

    async def list_all(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v1/audio/voices/own`. Raises EngineMissing while they are off."""
        voices = enabled(self._voices)
        found = tuple(own_voice_view(one) for one in voices.list_all())
        return _json(OwnVoicesView(found, tuple(voices.languages), CONSENT, MIN_S, MAX_S))

    async def add(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /v1/audio/voices`. Raises RequestError, EngineError, StorageError."""
        voices = enabled(self._voices)
        return _json(own_voice_view(await while_connected(request, self._add(request, voices))))

    async def delete(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `DELETE /v1/audio/voices/{id}`. Raises NotFound voice_not_found."""
        name = request.match_info["id"].removeprefix(f"{OWN_VOICES}/")
        await enabled(self._voices).delete(name)
        return _json(OwnVoiceDeleted(f"{OWN_VOICES}/{name}"))

    async def _add(self, request: aioweb.Request, voices: OwnVoices) -> OwnVoice:
        with self._spools.open() as spool:
            form = await read_form(request, spool, _FIELDS.__contains__, file=SAMPLE_FIELD)
            if form.other_fields:
                name = form.other_fields[0][0][:64]
                allowed = ", ".join((*_FIELDS, SAMPLE_FIELD))
                message = f"Unknown field {name!r}; allowed: {allowed}."
                raise RequestError(message, code="unknown_parameter", param=name)
            fields = dict(form.fields)
            if (kind := fields.get("type", "audio_sample")) != "audio_sample":
                raise RequestError(
                    f"Invalid value for 'type': {kind[:64]!r}. Allowed: audio_sample.",
                    code="invalid_value",
                    param="type",
                )
            language = fields.get("language", "")
            wanted = OwnVoiceRequest(
                fields.get("name", ""), fields.get("consent", ""), code_of(language) or language
            )
            return await make_voice(voices, self._decoder, spool, wanted, file_param=SAMPLE_FIELD)


def own_voice_view(voice: OwnVoice) -> OwnVoiceView:
    """Returns a voice as the API shows it."""
    return OwnVoiceView(
        f"{OWN_VOICES}/{voice.name}",
        voice.name,
        voice.language,
        voice.consent,
        int(voice.created.timestamp()),
    )


def own_voice_routes(door: OwnVoicesDoor) -> tuple[Route, ...]:
    """Returns the routes. Each key has voices of its own, so the scope is that of conversations."""
    return (
        Route(
            "GET",
            f"{VOICES_PATH}/{OWN_VOICES}",
            door.list_all,
            "List the voices that the key made of recordings, and what a new one needs.",
            _TAG,
            responses={200: OwnVoicesView},
            error_codes=("engine_missing",),
            scope="talk",
        ),
        Route(
            "POST",
            VOICES_PATH,
            door.add,
            "Make a voice of a recording of 3 to 15 s. The recording is not kept, and only the key"
            " that makes the voice can use it.",
            _TAG,
            request=OwnVoiceForm,
            request_content_types=(FORM,),
            max_body_bytes=MAX_BODY_BYTES,
            responses={200: OwnVoiceView},
            error_codes=(
                *("client_gone", "consent_required", "engine_busy", "engine_crashed"),
                *("engine_failed", "engine_missing", "engine_timeout", "invalid_form"),
                *("invalid_value", "key_not_found", "missing_required_parameter"),
                *("storage_failed", "too_many_voices", "unknown_parameter", "unsuitable_recording"),
                *("unsupported_audio", "unsupported_language", "unsupported_media_type"),
                *("upload_stalled", "voice_exists"),
            ),
            scope="talk",
        ),
        Route(
            "DELETE",
            f"{VOICES_PATH}/{{id:.+}}",
            door.delete,
            "Delete a voice that the key made of a recording, with all that was computed of it.",
            _TAG,
            responses={200: OwnVoiceDeleted},
            error_codes=("engine_missing", "storage_failed", "voice_not_found"),
            scope="talk",
        ),
    )


def _json(answer: object) -> aioweb.Response:
    headers = {"Cache-Control": "no-store"}
    return aioweb.Response(body=msgspec.json.encode(answer), content_type=JSON, headers=headers)
