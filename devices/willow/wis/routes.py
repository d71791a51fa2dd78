"""Routes of the Willow door, for the server and its OpenAPI description."""

from dataclasses import replace

from core.http.routes import Route
from devices.willow.wis.asr_reply import DeviceAsrReply, FileAsrReply
from devices.willow.wis.chatbot import ChatbotReply
from devices.willow.wis.door import WillowDoor, WisPong, WisSessionDescription
from devices.willow.wis.upload import FORM
from media.files.encode import FORMATS

_TAG = "willow"
_RECOGNITION = {
    "model": "tiny, base, small, medium, large or the name of a loaded model; default: ours.",
    "detect_language": "true: find the language out; otherwise it is the server's.",
    "force_language": "A language code: the one that is spoken.",
    "beam_size": "1 to 10: more is slower, and a little better.",
    "translate": "true: also give the English translation.",
    "task": "transcribe, or translate: the text itself is English.",
    "return_language": "en: also give the English translation of speech in another language.",
}
_WISHES = ("invalid_value", "model_not_found", "unsupported_language", "unsupported_parameter")
_UPLOAD = (
    "audio_too_large",
    "audio_too_long",
    "client_gone",
    "invalid_body",
    "unsupported_audio",
    "upload_stalled",
)


_SOUND = {
    "format": f"{', '.join(kind.upper() for kind in FORMATS)}.",
    "speaker": "A voice; one that is not here is spoken by the language's own.",
    "speed": "0.25 to 4; 1 is normal.",
}
_QUESTION = {
    "language": "A language code; default: what the text is written in.",
    "conversation_id": "Ours: what was said under it before is known, and this will be.",
    "model": "Ours: a language model of this server.",
    "max_new_tokens": "1 to 16384: the longest answer, for models that count.",
    "temperature": "0 to 2.",
    "top_p": "0.01 to 1: only the likeliest words that are together as likely as this.",
    "repetition_penalty": "0.5 to 2: above 1, what was said before is less likely.",
}
_ASKED = (
    "context_length_exceeded",
    "conversation_already_has_active_response",
    "engine_failed",
    "engine_timeout",
    "forbidden_origin",
    "invalid_value",
    "missing_required_parameter",
    "model_not_found",
    "server_full",
)
_SPOKEN = ("client_gone", "download_stalled", "engine_busy", "engine_failed")


def routes(door: WillowDoor) -> tuple[Route, ...]:
    # The assistant is not open to pages without a key: it may switch lights.
    for_pages = (*_listening(door), _calls(door), *_speaking(door))
    return (
        *(replace(one, admits_page=door.settings.pages.admits) for one in for_pages),
        *_assistant(door),
        _speech_to_speech(door),
        *_about(door),
    )


def _listening(door: WillowDoor) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            "/api/willow",
            door.device,
            "Recognise speech while it is sent; headers `x-audio-*` say what it is. Below 2 KB.",
            _TAG,
            request_content_types=("application/octet-stream",),
            responses={200: DeviceAsrReply},
            query={
                **_RECOGNITION,
                "stats": "true: also give infer_time, infer_speedup and audio_duration.",
                "save_audio": "Accepted for old clients; speech is never stored.",
                "voice_auth": "true is refused: no voices are enrolled.",
            },
            error_codes=(*_WISHES, *_UPLOAD, "unauthorized_voice"),
            max_body_bytes=door.max_body_bytes,
        ),
        Route(
            "POST",
            "/api/asr",
            door.file,
            "Recognise the recording in the form's part `audio_file`.",
            _TAG,
            request_content_types=(FORM,),
            responses={200: FileAsrReply},
            query=_RECOGNITION,
            error_codes=(
                *_WISHES,
                *_UPLOAD,
                "invalid_form",
                "missing_required_parameter",
                "unsupported_media_type",
            ),
            max_body_bytes=door.max_body_bytes,
        ),
    )


def _calls(door: WillowDoor) -> Route:
    return Route(
        "POST",
        "/api/rtc/asr",
        door.offer,
        "Recognise over WebRTC: SDP offer in, answer out; messages on the channel `chat`.",
        _TAG,
        request=WisSessionDescription,
        responses={200: WisSessionDescription},
        query=_RECOGNITION,
        error_codes=(
            *_WISHES,
            "draining",
            "invalid_json",
            "invalid_sdp",
            "sdp_too_large",
            "sdp_without_audio",
            "sdp_without_opus",
            "server_full",
        ),
    )


def _speaking(door: WillowDoor) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/api/tts",
            door.speech,
            "Speak a text; the sound begins while the rest is being made.",
            _TAG,
            response_content_type="audio/wav",
            query={
                "text": "What shall be said.",
                "language": "A language code; default: the server's.",
                **_SOUND,
            },
            error_codes=(
                *_SPOKEN,
                "forbidden_origin",
                "invalid_value",
                "missing_required_parameter",
                "unsupported_language",
            ),
        ),
        Route(
            "POST",
            "/api/tts",
            door.clone,
            "Voices cannot be uploaded; this says so.",
            _TAG,
            responses={},
            error_codes=("unsupported_operation",),
        ),
    )


def _assistant(door: WillowDoor) -> tuple[Route, ...]:
    text = {"text": "What is asked or told."}
    return (
        Route(
            "GET",
            "/api/chatbot",
            door.chatbot.write,
            "Ask the assistant, or have it do something.",
            _TAG,
            responses={200: ChatbotReply},
            query={**text, **_QUESTION},
            error_codes=_ASKED,
        ),
        Route(
            "GET",
            "/api/chatbot/tts",
            door.chatbot.say,
            "The same, answered in speech that begins while the rest is being written.",
            _TAG,
            response_content_type="audio/flac",
            query={**text, **_QUESTION, **_SOUND},
            error_codes=(*_ASKED, *_SPOKEN[:3], "unsupported_language"),
        ),
        *_both(
            Route(
                "GET",
                "/api/ws/chatbot",
                door.chat_socket.serve,
                "The same over a WebSocket: a text frame asks, a text frame answers.",
                _TAG,
                responses={101: None},
                query=_QUESTION,
                error_codes=(*_ASKED, "websocket_expected"),
            )
        ),
    )


def _both(route: Route) -> tuple[Route, Route]:
    """Returns the route under /api, and without it as WIS's README and older clients have it."""
    return route, replace(route, path=route.path.removeprefix("/api"))


def _speech_to_speech(door: WillowDoor) -> Route:
    return Route(
        "POST",
        "/api/sts",
        door.converse,
        "Recognise the recording in the form's part `audio_file`, and say it in another voice, in"
        " English, or answer it.",
        _TAG,
        request_content_types=(FORM,),
        response_content_type="audio/flac",
        query={
            **_RECOGNITION,
            "translate": "true: say it in English.",
            "answer": "Ours. true: ask the assistant, and say what it answers.",
            "conversation_id": f"With answer. {_QUESTION['conversation_id']}",
            **_SOUND,
        },
        error_codes=(
            *_WISHES,
            *_UPLOAD,
            *_SPOKEN[1:],
            "conversation_already_has_active_response",
            "invalid_form",
            "missing_required_parameter",
            "no_speech",
            "unsupported_media_type",
        ),
        max_body_bytes=door.max_body_bytes,
    )


def _about(door: WillowDoor) -> tuple[Route, ...]:
    return (
        *_both(
            Route(
                "GET",
                "/api/ping",
                door.ping,
                "Whether anybody is there.",
                _TAG,
                responses={200: WisPong},
            )
        ),
        Route("GET", "/api/docs", door.docs, "To `/docs`.", _TAG, responses={302: None}),
        Route("GET", "/api/redoc", door.docs, "To `/docs`.", _TAG, responses={302: None}),
        Route(
            "GET",
            "/api/openapi.json",
            door.openapi,
            "To `/openapi.json`.",
            _TAG,
            responses={302: None},
        ),
    )
