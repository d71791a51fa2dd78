"""`/api/speaker`: makes, lists and deletes voices of one's own for clients of WIS."""

import msgspec
from aiohttp import web as aioweb
from msgspec import Struct

from core.errors import RequestError
from core.http.client_connection import while_connected
from core.http.routes import JSON, Route
from devices.willow.wis.params import text_of
from devices.willow.wis.speakers import SPEAKERS
from devices.willow.wis.upload import FILE, FORM, spool_form
from media.files.decode import FileDecoder
from media.files.upload_spool import UploadSpools
from pipeline.speech.own_voices import OwnVoice, OwnVoiceRequest, OwnVoices, enabled, make_voice

NAME_PARAM = "speaker_name"

_TAG = "willow"
_NAME = {NAME_PARAM: "1 to 32 of the characters A to Z, a to z, 0 to 9, _ and -."}


class WisSpeakers(Struct, frozen=True):
    """Names for the parameter `speaker`."""

    speakers: tuple[str, ...]
    "The six of WIS, then the voices of the key."


class WisMessage(Struct, frozen=True):
    """Response to a change."""

    message: str


class WisSpeakerDoor:
    """HTTP handlers for the voices of the caller's key."""

    def __init__(
        self,
        voices: OwnVoices | None,
        spools: UploadSpools,
        decoder: FileDecoder,
        max_body_bytes: int,
    ) -> None:
        """`voices`: None: they are off. `max_body_bytes`: limit of a form."""
        self._voices, self._spools, self._decoder = voices, spools, decoder
        self.max_body_bytes = max_body_bytes

    async def list_all(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /api/speaker`."""
        own = self._voices.list_all() if self._voices else ()
        return _json(WisSpeakers((*SPEAKERS, *(voice.name for voice in own))))

    async def add(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /api/speaker`. Raises RequestError, EngineError, StorageError."""
        voice = await while_connected(request, self._add(request, enabled(self._voices)))
        return _json(WisMessage(f"Created custom speaker successfully: {voice.name}"))

    async def delete(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `DELETE /api/speaker`. Raises NotFound voice_not_found, StorageError."""
        name = text_of(request.query, NAME_PARAM)
        await enabled(self._voices).delete(name)
        return _json(WisMessage(f"Deleted custom speaker successfully: {name}"))

    async def _add(self, request: aioweb.Request, voices: OwnVoices) -> OwnVoice:
        query = request.query
        name, consent = text_of(query, NAME_PARAM), text_of(query, "consent")
        if name.upper() in SPEAKERS:
            raise RequestError(
                f"{name!r} is a speaker of WIS: choose another name",
                code="invalid_value",
                param=NAME_PARAM,
            )
        with self._spools.open() as spool:
            await spool_form(request, spool, self.max_body_bytes)
            wanted = OwnVoiceRequest(name, consent, text_of(query, "language"))
            return await make_voice(
                voices, self._decoder, spool, wanted, name_param=NAME_PARAM, file_param=FILE
            )


def speaker_routes(door: WisSpeakerDoor, *, upload_errors: tuple[str, ...]) -> tuple[Route, ...]:
    """Returns the routes. `upload_errors`: codes of errors of any upload."""
    return (
        Route(
            "GET",
            "/api/speaker",
            door.list_all,
            "List the names for the parameter `speaker`: the six of WIS, and the voices that the"
            " key made of recordings.",
            _TAG,
            responses={200: WisSpeakers},
            scope="talk",
        ),
        Route(
            "POST",
            "/api/speaker",
            door.add,
            "Make a voice of the recording of 3 to 15 s in the form's part `audio_file`.",
            _TAG,
            request_content_types=(FORM,),
            responses={200: WisMessage},
            query={
                **_NAME,
                "consent": (
                    "Extension of Earshot: the text to which the person has agreed. An error"
                    " without it says the text."
                ),
                "language": "Extension of Earshot: ISO 639-1 code. Default: the engine's.",
            },
            error_codes=(
                *upload_errors,
                *("consent_required", "engine_crashed", "engine_failed", "engine_missing"),
                *("engine_timeout", "invalid_form", "invalid_value", "key_not_found"),
                *("missing_required_parameter", "storage_failed", "too_many_voices"),
                *("unsuitable_recording", "unsupported_language", "unsupported_media_type"),
                "voice_exists",
            ),
            max_body_bytes=door.max_body_bytes,
            scope="talk",
        ),
        Route(
            "DELETE",
            "/api/speaker",
            door.delete,
            "Delete a voice that the key made of a recording.",
            _TAG,
            responses={200: WisMessage},
            query=_NAME,
            error_codes=("engine_missing", "storage_failed", "voice_not_found"),
            scope="talk",
        ),
    )


def _json(answer: object) -> aioweb.Response:
    return aioweb.Response(body=msgspec.json.encode(answer), content_type=JSON)
