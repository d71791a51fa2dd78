"""Checks a profile before it is stored: a device that a session refuses later cannot say why."""

from collections.abc import Callable

from core.errors import NotFound, RequestError
from devices.fleet.directory import ProfileT

_FIELDS = {
    "audio.output.voice": "profile.voice",
    "audio.input.transcription.language": "profile.language",
    "audio.input.transcription.model": "profile.asr",
}
"Field of a session that an error names -> field of the profile that it comes from."

PROFILE_ERRORS = ("model_not_found", "unsupported_language", "voice_not_found")
"Codes of the errors that `check_profile` raises."


def check_profile(profile: ProfileT, check: Callable[[ProfileT], None]) -> None:
    """Raises RequestError for a profile with which no session could begin; it names the field.

    check: raises RequestError or NotFound for such a profile, with the fields of a session.
    """
    try:
        check(profile)
    except (RequestError, NotFound) as error:
        field = _FIELDS.get(error.param or "", "profile")
        raise RequestError(f"{field}: {error}", code=error.code, param=field) from error
