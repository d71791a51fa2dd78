"""Routes of the Willow door, for the server and its OpenAPI description."""

from dataclasses import replace

from core.http.routes import Route
from devices.willow.wis.asr_reply import DeviceAsrReply, FileAsrReply
from devices.willow.wis.chatbot import ChatbotReply
from devices.willow.wis.door import WillowDoor, WisPong, WisSessionDescription
from devices.willow.wis.own_voices import speaker_routes
from devices.willow.wis.upload import FORM
from media.files.encode import FORMATS

_TAG = "willow"
_RECOGNITION = {
    "model": (
        "tiny, base, small, medium, large, or the name of a loaded model. Default: the server's"
        " model."
    ),
    "detect_language": "true: detect the language. Otherwise it is the server's.",
    "force_language": "Code of the spoken language.",
    "beam_size": "1 to 10: a larger beam is slower and slightly more accurate.",
    "translate": "true: also return an English translation.",
    "task": "transcribe, or translate, which returns English text instead of the transcript.",
    "return_language": "en: also return an English translation of speech in another language.",
}
_PARAM_ERRORS = (
    "invalid_value",
    "model_not_found",
    "unsupported_language",
    "unsupported_parameter",
)
_UPLOAD_ERRORS = (
    "audio_too_large",
    "audio_too_long",
    "client_gone",
    "invalid_body",
    "unsupported_audio",
    "upload_stalled",
)


_SPEECH_PARAMS = {
    "format": f"{', '.join(kind.upper() for kind in FORMATS)}.",
    "speaker": (
        "A voice of `GET /v1/audio/voices`, or one of WIS's six: AWB, BDL, CLB, KSP, RMS, SLT. An"
        " unknown name means the default voice of the language."
    ),
    "speed": "Rate of speech, 0.25 to 4; 1 is normal.",
}
_QUESTION_PARAMS = {
    "language": "Language code. Default: the language that is detected in the text.",
    "conversation_id": "Extension of Earshot: id of the conversation that this request continues.",
    "model": "Extension of Earshot: name of a language model of this server.",
    "max_new_tokens": (
        "1 to 16384: largest number of tokens in the answer, for models that count tokens."
    ),
    "temperature": "Sampling temperature, 0 to 2.",
    "top_p": (
        "0.01 to 1: sample only from the most likely tokens whose probabilities add up to this."
    ),
    "repetition_penalty": (
        "0.5 to 2: values above 1 make tokens that already occurred less likely."
    ),
}
_QUESTION_ERRORS = (
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
_SPEECH_ERRORS = ("client_gone", "download_stalled", "engine_busy", "engine_failed")


def routes(door: WillowDoor) -> tuple[Route, ...]:
    # The assistant is not open to pages without a key: it may switch lights.
    for_pages = (*_recognition_routes(door), _calls(door), *_speech_routes(door))
    return (
        *(replace(route, admits_page=door.settings.pages.admits) for route in for_pages),
        *_assistant_routes(door),
        _speech_to_speech(door),
        *speaker_routes(door.speaker_door, upload_errors=_UPLOAD_ERRORS),
        *_info_routes(door),
    )


def _recognition_routes(door: WillowDoor) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            "/api/willow",
            door.device,
            "Recognise speech while it is uploaded; the `x-audio-*` headers name its format. The"
            " reply has less than 2048 bytes.",
            _TAG,
            request_content_types=("application/octet-stream",),
            responses={200: DeviceAsrReply},
            query={
                **_RECOGNITION,
                "stats": "true: also return infer_time, infer_speedup and audio_duration.",
                "save_audio": "Accepted from old clients without effect: audio is never stored.",
                "voice_auth": (
                    "true: recognise only people whose voices the server knows, and return their"
                    " names; 406 for other voices."
                ),
            },
            error_codes=(*_PARAM_ERRORS, *_UPLOAD_ERRORS, "unauthorized_voice"),
            max_body_bytes=door.max_body_bytes,
            scope="talk",
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
                *_PARAM_ERRORS,
                *_UPLOAD_ERRORS,
                "invalid_form",
                "missing_required_parameter",
                "unsupported_media_type",
            ),
            max_body_bytes=door.max_body_bytes,
            scope="talk",
        ),
    )


def _calls(door: WillowDoor) -> Route:
    return Route(
        "POST",
        "/api/rtc/asr",
        door.offer,
        "Recognise speech over WebRTC: send an SDP offer, get the SDP answer. Messages use the"
        " data channel `chat`.",
        _TAG,
        request=WisSessionDescription,
        responses={200: WisSessionDescription},
        query=_RECOGNITION,
        error_codes=(
            *_PARAM_ERRORS,
            "draining",
            "invalid_json",
            "invalid_sdp",
            "sdp_too_large",
            "sdp_without_audio",
            "sdp_without_opus",
            "server_full",
        ),
        scope="talk",
    )


def _speech_routes(door: WillowDoor) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/api/tts",
            door.speech,
            "Convert text to speech. The audio starts before all of it has been synthesized.",
            _TAG,
            response_content_type="audio/wav",
            query={
                "text": "Text to speak.",
                "language": "Language code. Default: the server's language.",
                **_SPEECH_PARAMS,
            },
            error_codes=(
                *_SPEECH_ERRORS,
                "forbidden_origin",
                "invalid_ssml",
                "invalid_value",
                "missing_required_parameter",
                "unsupported_language",
            ),
            scope="talk",
        ),
        Route(
            "POST",
            "/api/tts",
            door.clone,
            "Always fails: custom voices cannot be uploaded.",
            _TAG,
            responses={},
            error_codes=("unsupported_operation",),
            scope="talk",
        ),
    )


def _assistant_routes(door: WillowDoor) -> tuple[Route, ...]:
    text = {"text": "Question or command for the assistant."}
    return (
        Route(
            "GET",
            "/api/chatbot",
            door.chatbot.write,
            "Send a question or a command to the assistant, and get its answer as text.",
            _TAG,
            responses={200: ChatbotReply},
            query={**text, **_QUESTION_PARAMS},
            error_codes=_QUESTION_ERRORS,
            scope="talk",
        ),
        Route(
            "GET",
            "/api/chatbot/tts",
            door.chatbot.say,
            "Send a question or a command to the assistant, and get its answer as speech, streamed"
            " while it is generated.",
            _TAG,
            response_content_type="audio/flac",
            query={**text, **_QUESTION_PARAMS, **_SPEECH_PARAMS},
            error_codes=(*_QUESTION_ERRORS, *_SPEECH_ERRORS[:3], "unsupported_language"),
            scope="talk",
        ),
        *_with_and_without_api(
            Route(
                "GET",
                "/api/ws/chatbot",
                door.chat_socket.serve,
                "Talk to the assistant over a WebSocket: one text frame per question, one per"
                " answer.",
                _TAG,
                responses={101: None},
                query=_QUESTION_PARAMS,
                error_codes=(*_QUESTION_ERRORS, "websocket_expected"),
                scope="talk",
            )
        ),
    )


def _with_and_without_api(route: Route) -> tuple[Route, Route]:
    """Returns the route under /api, and without it as WIS's README and older clients have it."""
    return route, replace(route, path=route.path.removeprefix("/api"))


def _speech_to_speech(door: WillowDoor) -> Route:
    return Route(
        "POST",
        "/api/sts",
        door.converse,
        "Recognise the recording in the form's part `audio_file`, and speak its text in another"
        " voice, its English translation, or the assistant's answer to it.",
        _TAG,
        request_content_types=(FORM,),
        response_content_type="audio/flac",
        query={
            **_RECOGNITION,
            "translate": "true: speak the English translation.",
            "answer": (
                "Extension of Earshot. true: send the transcript to the assistant and speak the"
                " answer."
            ),
            "conversation_id": f"With answer. {_QUESTION_PARAMS['conversation_id']}",
            **_SPEECH_PARAMS,
        },
        error_codes=(
            *_PARAM_ERRORS,
            *_UPLOAD_ERRORS,
            *_SPEECH_ERRORS[1:],
            "conversation_already_has_active_response",
            "invalid_form",
            "missing_required_parameter",
            "no_speech",
            "unsupported_media_type",
        ),
        max_body_bytes=door.max_body_bytes,
        scope="talk",
    )


def _info_routes(door: WillowDoor) -> tuple[Route, ...]:
    return (
        *_with_and_without_api(
            Route(
                "GET",
                "/api/ping",
                door.ping,
                "Check that the server answers.",
                _TAG,
                responses={200: WisPong},
                scope="talk",
            )
        ),
        Route(
            "GET",
            "/api/docs",
            door.docs,
            "Redirect to `/docs`.",
            _TAG,
            responses={302: None},
            scope="talk",
        ),
        Route(
            "GET",
            "/api/redoc",
            door.docs,
            "Redirect to `/docs`.",
            _TAG,
            responses={302: None},
            scope="talk",
        ),
        Route(
            "GET",
            "/api/openapi.json",
            door.openapi,
            "Redirect to `/openapi.json`.",
            _TAG,
            responses={302: None},
            scope="talk",
        ),
    )
