"""Opens the doors that turn text into sound: speech of any voice, and voices of one's own."""

from core.http.routes import Route
from media.files.upload_spool import UploadSpools
from pipeline.shared.settings import SessionSettings
from server.compose.backend import Backend
from server.compose.settings import CallerDefaults
from web.indri import IndriDoor
from web.indri_completion import IndriCompletionDoor, indri_completion_route
from web.openai.limits import RequestLimits
from web.openai.routes import indri_routes, speech_routes
from web.openai.speech.door import SpeechDoor
from web.openai.speech.own_voices import VOICE_UPLOADS, OwnVoicesDoor, own_voice_routes


def speech_door_routes(
    backend: Backend, spools: UploadSpools, limits: RequestLimits
) -> tuple[Route, ...]:
    """Returns the routes of the doors."""
    files, own_voices = backend.speech_files, backend.own_voices
    decoder = backend.decoder.share(VOICE_UPLOADS)
    speech = _speech_door(backend, limits)
    indri = IndriDoor(speech, files, limits.speech, backend.devices.voice_ratings)
    completion = IndriCompletionDoor(own_voices, files, spools, decoder, limits.speech)
    return (
        *speech_routes(speech),
        *own_voice_routes(OwnVoicesDoor(own_voices, spools, decoder)),
        *indri_routes(indri),
        indri_completion_route(completion),
    )


def _speech_door(backend: Backend, limits: RequestLimits) -> SpeechDoor:
    return SpeechDoor(
        backend.session_services.engines,
        backend.speech_files,
        backend.languages,
        limits.speech,
        backend.engines.remote,
        # The assistant's voice speaks answers. What a program lets read is of any kind, so only the
        # key of a person counts here.
        CallerDefaults(SessionSettings, backend.devices.named_keys),
    )
