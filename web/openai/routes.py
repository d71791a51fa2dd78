"""Lists the routes of OpenAI's REST API."""

from dataclasses import replace

from core.http.routes import JSON, Route
from pipeline.speech.voices import VOICES_PATH
from web.indri import (
    METRICS_HEADER,
    SAMPLE_HEADER,
    IndriDoor,
    IndriFeedback,
    IndriRatings,
    IndriSpeakerFields,
    IndriSpeakers,
    IndriSpeakerText,
    IndriSpeechFields,
)
from web.openai.chat.completion import ChatCompletion
from web.openai.chat.door import ChatDoor, CompletionFields
from web.openai.chat.fields import ChatFields
from web.openai.models import ModelCard, ModelList
from web.openai.responses.door import ResponsesDoor
from web.openai.responses.fields import ResponseFields
from web.openai.speech.door import SpeechDoor
from web.openai.speech.fields import SpeechFields
from web.openai.speech.voice_cards import VoiceList, VoiceModelList
from web.openai.transcriptions.door import AudioDoor
from web.openai.transcriptions.fields import TranscriptionForm, TranslationForm
from web.openai.transcriptions.formats import TranscriptionResponse
from web.openai.transcriptions.multipart import FORM
from web.whisper_asr import DetectedLanguage, WhisperServiceForm

_TAG = "openai"
_AUDIO = (
    "audio_too_large",
    "audio_too_long",
    "draining",
    "engine_crashed",
    "engine_failed",
    "engine_timeout",
    "engine_unreachable",
    "invalid_form",
    "invalid_value",
    "missing_required_parameter",
    "model_not_found",
    "refused_by_model",
    "server_full",
    "too_large",
    "too_many_requests",
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
            "Convert text to speech. The audio in `response_format` is streamed while it is"
            " generated, as a file or as server-sent events.",
            _TAG,
            request=SpeechFields,
            response_content_type="audio/mpeg",
            error_codes=(
                "client_gone",
                "download_stalled",
                "draining",
                "empty_string",
                "engine_failed",
                "engine_timeout",
                "engine_unreachable",
                "invalid_json",
                "invalid_ssml",
                "invalid_value",
                "missing_required_parameter",
                "model_not_found",
                "refused_by_model",
                "string_above_max_length",
                "too_large",
                "too_many_requests",
                "unsupported_language",
                "unsupported_media_type",
                "voice_not_found",
            ),
            scope="talk",
        ),
        *_voice_routes(door),
    )


def indri_routes(door: IndriDoor) -> tuple[Route, ...]:
    """Returns the routes of Indri's own server."""
    (speech, *_) = speech_routes(door.speech)
    return (
        replace(
            speech,
            path="/tts",
            handler=door.tts,
            summary="Convert text to an MP3 file for clients of Indri's server; the header"
            " `x-metrics` has the times.",
            request=IndriSpeechFields,
            response_headers={METRICS_HEADER: "Times in seconds and counts, as a JSON object."},
        ),
        Route(
            "GET",
            "/speakers",
            door.speakers,
            "List the voices of the preferred engine for clients of Indri's server.",
            _TAG,
            responses={200: IndriSpeakers},
            scope="talk",
        ),
        Route(
            "POST",
            "/speaker_text",
            door.speaker_text,
            "Get a sentence to try a voice with, for clients of Indri's server.",
            _TAG,
            request=IndriSpeakerFields,
            responses={200: IndriSpeakerText},
            error_codes=(
                "invalid_json",
                "invalid_value",
                "missing_required_parameter",
                "unsupported_media_type",
                "voice_not_found",
            ),
            scope="talk",
        ),
        replace(
            speech,
            method="GET",
            path="/sample_audio",
            handler=door.sample_audio,
            summary="Hear a sentence by any voice of the preferred engine, for clients of Indri's"
            " server.",
            request=None,
            response_headers={SAMPLE_HEADER: "Id with which an opinion can be given."},
        ),
        Route(
            "POST",
            "/audio_feedback",
            door.feedback,
            "Say whether the voice of a sample is good, for clients of Indri's server.",
            _TAG,
            request=IndriFeedback,
            error_codes=(
                "invalid_json",
                "invalid_value",
                "missing_required_parameter",
                "sample_not_found",
                "unsupported_media_type",
            ),
            scope="talk",
        ),
        Route(
            "GET",
            "/audio_feedback",
            door.ratings,
            "List what the caller thinks of voices.",
            _TAG,
            responses={200: IndriRatings},
            scope="talk",
        ),
    )


def _voice_routes(door: SpeechDoor) -> tuple[Route, ...]:
    """Returns the routes of the lists of voices and engines, and of samples."""
    return (
        Route(
            "GET",
            VOICES_PATH,
            door.voices,
            "List the voices for speech, in the form that Open WebUI's picker reads.",
            _TAG,
            responses={200: VoiceList},
            query={
                "language": "ISO 639-1 code or English name: only voices that speak it.",
                "engine": "Only voices of this engine.",
            },
            error_codes=("invalid_value", "unsupported_language"),
            scope="talk",
        ),
        Route(
            "GET",
            f"{VOICES_PATH}/{{id:.+}}/sample",
            door.sample,
            "Hear a voice: a short sentence in its language, as a WAV file.",
            _TAG,
            query={
                "language": "Language of the sentence, for a voice that speaks several.",
                "speed": "Rate of speech, 0.25 to 4; 1 is normal.",
            },
            response_content_type="audio/wav",
            error_codes=(
                "client_gone",
                "draining",
                "engine_failed",
                "engine_timeout",
                "engine_unreachable",
                "invalid_value",
                "too_many_requests",
                "unsupported_language",
                "voice_not_found",
            ),
            scope="talk",
        ),
        Route(
            "GET",
            "/v1/audio/models",
            door.models,
            "List the speech engines, in the form that Open WebUI's picker reads.",
            _TAG,
            responses={200: VoiceModelList},
            scope="talk",
        ),
    )


_CHAT = (
    "answer_format_broken",
    "client_gone",
    "context_length_exceeded",
    "download_stalled",
    "draining",
    "engine_crashed",
    "engine_failed",
    "engine_timeout",
    "engine_unreachable",
    "invalid_image",
    "invalid_json",
    "invalid_value",
    "missing_required_parameter",
    "missing_scope",
    "model_not_found",
    "refused_by_model",
    "server_full",
    "too_large",
    "too_many_requests",
    "unsupported_media_type",
    "unsupported_operation",
    "unsupported_parameter",
)
_LATENCY = {
    "x-earshot-queue-ms": "Time until the request got its place at the model.",
    "x-earshot-first-token-ms": "Time until the first piece of the answer.",
    "x-earshot-total-ms": "Time until the end of the answer; not in a stream.",
}


def chat_routes(door: ChatDoor) -> tuple[Route, ...]:
    """Returns the routes of chat and text completions."""
    return (
        Route(
            "POST",
            "/v1/chat/completions",
            door.chat_completions,
            "Answer a conversation. `assistant` is this server's assistant with its tools; other"
            " names are the language model itself. `stream` selects server-sent events.",
            _TAG,
            request=ChatFields,
            responses={200: ChatCompletion},
            response_headers=_LATENCY,
            error_codes=_CHAT,
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/completions",
            door.completions,
            "Continue a text, with a language model that runs in a model server.",
            _TAG,
            request=CompletionFields,
            response_headers=_LATENCY,
            error_codes=_CHAT,
            scope="talk",
        ),
    )


def response_routes(door: ResponsesDoor) -> tuple[Route, ...]:
    """Returns the routes of the Responses operations."""
    path = "/v1/responses/{response}"
    return (
        Route(
            "POST",
            "/v1/responses",
            door.create,
            "Answer the input, and continue the response that `previous_response_id` names."
            " `stream` selects server-sent events.",
            _TAG,
            request=ResponseFields,
            response_headers=_LATENCY,
            error_codes=(*_CHAT, "item_not_found", "response_not_found"),
            scope="talk",
        ),
        Route(
            "GET",
            path,
            door.get,
            "Show a response that is kept in memory.",
            _TAG,
            error_codes=("response_not_found",),
            scope="talk",
        ),
        Route(
            "DELETE",
            path,
            door.delete,
            "Forget a response.",
            _TAG,
            error_codes=("response_not_found",),
            scope="talk",
        ),
    )


def _audio_routes(door: AudioDoor) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            "/v1/audio/transcriptions",
            door.transcriptions,
            "Convert speech to text. `response_format` selects JSON, plain text, subtitles, or"
            " JSON that says who speaks; `stream` selects server-sent events.",
            _TAG,
            request=TranscriptionForm,
            request_content_types=(FORM,),
            responses={200: TranscriptionResponse},
            error_codes=_AUDIO,
            max_body_bytes=door.max_body_bytes,
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/audio/translations",
            door.translations,
            "Convert speech in any language to English text. The language is detected.",
            _TAG,
            request=TranslationForm,
            request_content_types=(FORM,),
            responses={200: TranscriptionResponse},
            error_codes=_AUDIO,
            max_body_bytes=door.max_body_bytes,
            scope="talk",
        ),
    )


def _whisper_service_routes(door: AudioDoor) -> tuple[Route, ...]:
    """Returns the routes of whisper-asr-webservice, for Bazarr and others."""
    service = door.whisper_service
    transcription = Route(
        "POST",
        "/asr",
        service.transcribe,
        "Convert speech to text for clients of whisper-asr-webservice, such as Bazarr.",
        _TAG,
        request=WhisperServiceForm,
        request_content_types=(FORM,),
        response_content_type="text/plain",
        query={
            "output": "Format of the result: txt (default), vtt, srt, tsv or json.",
            "task": "transcribe (default), or translate, which gives English text.",
            "language": (
                "Language code, or English name of the language. Without it, the language is"
                " detected."
            ),
            "initial_prompt": (
                "Text that precedes the audio. Its spelling and names become more likely."
            ),
            "word_timestamps": "true: also return the times of each word. Only with json.",
            "vad_filter": "Without effect, because silence is always left out.",
            "encode": (
                "false: the audio is raw 16-bit PCM, 16 kHz, mono. Otherwise: any common container."
            ),
        },
        error_codes=_AUDIO,
        max_body_bytes=door.max_body_bytes,
        scope="talk",
    )
    detection = replace(
        transcription,
        path="/detect-language",
        handler=service.detect_language,
        summary="Detect the language of the first 30 s of a recording.",
        responses={200: DetectedLanguage},
        response_content_type=JSON,
        query={"encode": transcription.query["encode"]},
    )
    return transcription, detection


def _model_routes(door: AudioDoor) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/models",
            door.models,
            "List the models that requests may name. The request loads none of them.",
            _TAG,
            responses={200: ModelList},
            scope="talk",
        ),
        Route(
            "GET",
            "/v1/models/{model}",
            door.model,
            "Show one model. `default` and names of OpenAI's service are answered with the model"
            " that they stand for.",
            _TAG,
            responses={200: ModelCard},
            error_codes=("model_not_found",),
            scope="talk",
        ),
    )
