"""Routes of OpenAI's REST API, to be mounted and described."""

from dataclasses import replace

from core.http.routes import JSON, Route
from web.openai.models import ModelCard, ModelList
from web.openai.speech.door import SpeechDoor
from web.openai.speech.fields import SpeechFields
from web.openai.speech.voice_names import VoiceList, VoiceModelList
from web.openai.transcriptions.door import AudioDoor
from web.openai.transcriptions.fields import TranscriptionForm, TranslationForm
from web.openai.transcriptions.formats import TranscriptionResponse
from web.openai.transcriptions.multipart import FORM
from web.whisper_asr import DetectedLanguage, WhisperServiceForm

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
    """Returns the routes of transcriptions, translations and models."""
    return (*_audio_routes(door), *_whisper_service_routes(door), *_model_routes(door))


def speech_routes(door: SpeechDoor) -> tuple[Route, ...]:
    """Returns the routes of text to speech."""
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
        Route(
            "GET",
            "/v1/audio/voices",
            door.voices,
            "The voices that speech may ask for, as Open WebUI's picker reads them.",
            _TAG,
            responses={200: VoiceList},
        ),
        Route(
            "GET",
            "/v1/audio/models",
            door.models,
            "The engines that speak, as Open WebUI's picker reads them.",
            _TAG,
            responses={200: VoiceModelList},
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
            responses={200: TranscriptionResponse},
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
            responses={200: TranscriptionResponse},
            error_codes=_AUDIO,
            max_body_bytes=door.max_body_bytes,
        ),
    )


def _whisper_service_routes(door: AudioDoor) -> tuple[Route, ...]:
    """Returns the routes of whisper-asr-webservice, for Bazarr and others."""
    service = door.whisper_service
    shape = Route(
        "POST",
        "/asr",
        service.transcribe,
        "Speech to text for clients of whisper-asr-webservice, such as Bazarr.",
        _TAG,
        request=WhisperServiceForm,
        request_content_types=(FORM,),
        response_content_type="text/plain",
        query={
            "output": "txt (default), vtt, srt, tsv or json.",
            "task": "transcribe (default), or translate: into English.",
            "language": "A language code or an English name; none: it is detected.",
            "initial_prompt": "Text that comes before: its spelling and names become likelier.",
            "word_timestamps": "true: also the time of each word; with json.",
            "vad_filter": "Without effect: silence is always left out.",
            "encode": "false: the audio is raw, 16 kHz, 16 bits, mono; otherwise any container.",
        },
        error_codes=_AUDIO,
        max_body_bytes=door.max_body_bytes,
    )
    detection = replace(
        shape,
        path="/detect-language",
        handler=service.detect_language,
        summary="Which language the first 30 s of a recording are in.",
        responses={200: DetectedLanguage},
        response_content_type=JSON,
        query={"encode": shape.query["encode"]},
    )
    return shape, detection


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
