"""The REST door's routes, for the server to mount and to describe."""

from core.http import Route
from web.openai.answers import TranscriptionAnswer
from web.openai.door import AudioDoor
from web.openai.fields import TranscriptionForm, TranslationForm
from web.openai.form import FORM
from web.openai.models import ModelCard, ModelList
from web.openai.speech import SpeechDoor
from web.openai.speech_fields import SpeechFields

_TAG = "openai"
_AUDIO = (
    "audio_too_large",
    "audio_too_long",
    "engine_busy",
    "engine_crashed",
    "engine_failed",
    "engine_timeout",
    "invalid_form",
    "invalid_value",
    "missing_required_parameter",
    "model_not_found",
    "server_full",
    "too_large",
    "unsupported_audio",
    "unsupported_language",
    "unsupported_media_type",
    "unsupported_parameter",
)


def routes(door: AudioDoor) -> tuple[Route, ...]:
    return (*_audio_routes(door), *_model_routes(door))


def speech_routes(door: SpeechDoor) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            "/v1/audio/speech",
            door.speech,
            "Text to speech: a file of `response_format` that begins while the rest is being made,"
            " or server-sent events with it.",
            _TAG,
            request=SpeechFields,
            response_content_type="audio/mpeg",
            error_codes=(
                "client_gone",
                "download_stalled",
                "empty_string",
                "engine_busy",
                "engine_failed",
                "invalid_json",
                "invalid_value",
                "missing_required_parameter",
                "model_not_found",
                "string_above_max_length",
                "too_large",
                "unsupported_language",
                "unsupported_media_type",
                "voice_not_found",
            ),
        ),
    )


def _audio_routes(door: AudioDoor) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            "/v1/audio/transcriptions",
            door.transcriptions,
            "Speech to text: JSON, plain text or subtitles, as `response_format` says; with"
            " `stream` server-sent events.",
            _TAG,
            request=TranscriptionForm,
            request_content_types=(FORM,),
            responses={200: TranscriptionAnswer},
            error_codes=_AUDIO,
            max_body_bytes=door.max_body_bytes,
        ),
        Route(
            "POST",
            "/v1/audio/translations",
            door.translations,
            "Speech of any language, which is detected, to English text.",
            _TAG,
            request=TranslationForm,
            request_content_types=(FORM,),
            responses={200: TranscriptionAnswer},
            error_codes=_AUDIO,
            max_body_bytes=door.max_body_bytes,
        ),
    )


def _model_routes(door: AudioDoor) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/models",
            door.models,
            "The models that may be asked for; nothing is loaded.",
            _TAG,
            responses={200: ModelList},
        ),
        Route(
            "GET",
            "/v1/models/{model}",
            door.model,
            "One of them; `default` and hosted names are answered as what they mean here.",
            _TAG,
            responses={200: ModelCard},
            error_codes=("model_not_found",),
        ),
    )
