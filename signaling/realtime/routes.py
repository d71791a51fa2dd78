"""Routes of the Realtime door, with their descriptions for the API's documentation."""

from dataclasses import replace

from core.http.routes import JSON, Route
from signaling.realtime.client_secrets import ClientSecretRequest, ClientSecretResponse
from signaling.realtime.door import RealtimeDoor
from signaling.realtime.session.offer import FORM, SDP, CallForm

_TAG = "realtime"
_QUERY = {
    "model": "Name of a language model engine, or `default`.",
    "conversation_id": (
        "Id of the conversation to continue. An unknown id starts a new conversation with that id."
    ),
    "intent": "`transcription`: only transcribe speech, without answering.",
}
_ADMISSION = ("server_full", "draining", "model_not_found", "unsupported_parameter")
"Error codes of every request that opens a session."
_OFFER = (
    *_ADMISSION,
    "invalid_sdp",
    "sdp_without_audio",
    "sdp_without_opus",
    "sdp_too_large",
)
"Error codes of an SDP offer."
_SESSION = (
    "invalid_form",
    "invalid_json",
    "invalid_type",
    "invalid_value",
    "missing_required_parameter",
    "unknown_parameter",
    "unsupported_language",
    "unsupported_media_type",
    "voice_not_found",
)
"Error codes of a form with a session object."
_CLIENT_SECRET = (
    "invalid_json",
    "invalid_type",
    "invalid_value",
    "missing_required_parameter",
    "unknown_parameter",
    "unsupported_parameter",
)
"Error codes of requests for a client secret."
_LOCATION = {"Location": "Path of the call, `/v1/realtime/calls/rtc_...`, to hang it up."}


def routes(door: RealtimeDoor) -> tuple[Route, ...]:
    """Returns the routes of the door; those for client secrets only if it makes them."""
    secrets = door.secrets
    if secrets is None:
        return (*_opening_routes(door), *_call_routes(door))
    opened = (
        replace(r, admits=secrets.check) for r in (*_opening_routes(door), *_call_routes(door))
    )
    return (*opened, *_client_secret_routes(door))


def _client_secret_routes(door: RealtimeDoor) -> tuple[Route, ...]:
    key = Route(
        "POST",
        "/v1/realtime/client_secrets",
        door.client_secret,
        "Create an ephemeral key for a browser. Until it expires, it opens sessions with the"
        " settings of this request.",
        _TAG,
        request=ClientSecretRequest,
        responses={200: ClientSecretResponse},
        error_codes=(*_CLIENT_SECRET, "too_large", "too_many_client_secrets"),
        scope="talk",
    )
    beta = replace(
        key,
        path="/v1/realtime/sessions",
        handler=door.beta_session,
        summary=(
            "Create an ephemeral key for a client of the beta API: a flat session object, returned"
            " with its key."
        ),
        request=None,
        request_content_types=(JSON,),
        responses={200: None},
    )
    path = "/v1/realtime/transcription_sessions"
    transcription = replace(beta, path=path, handler=door.beta_transcription_session)
    return key, beta, transcription


def _opening_routes(door: RealtimeDoor) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/realtime",
            door.websocket,
            "Open a session over a WebSocket: Realtime events as JSON text, with audio as 24 kHz"
            " pcm16.",
            _TAG,
            responses={101: None},
            query={
                **_QUERY,
                "call_id": (
                    "Id of a WebRTC call whose events this connection receives, and to which it can"
                    " send events."
                ),
            },
            error_codes=("websocket_expected", "call_not_found", "too_many_asides", *_ADMISSION),
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/realtime/calls",
            door.call,
            "Start a call over WebRTC: send an SDP offer, get the SDP answer. Events use the data"
            " channel `oai-events`.",
            _TAG,
            request=CallForm,
            request_content_types=(FORM, SDP),
            responses={201: None},
            response_content_type=SDP,
            response_headers=_LOCATION,
            query=_QUERY,
            error_codes=(*_OFFER, *_SESSION),
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/realtime",
            door.legacy_call,
            "Start a WebRTC call for a client of the beta API: the body is only the SDP offer.",
            _TAG,
            request_content_types=(SDP,),
            responses={201: None},
            response_content_type=SDP,
            response_headers=_LOCATION,
            query=_QUERY,
            error_codes=_OFFER,
            scope="talk",
        ),
    )


def _call_routes(door: RealtimeDoor) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            "/v1/realtime/calls/{call_id}",
            door.offer_again,
            "Always fails: a call accepts one offer only. The error says whether the call exists.",
            _TAG,
            request_content_types=(SDP,),
            responses={},
            error_codes=("call_not_found", "call_already_answered"),
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/realtime/calls/{call_id}/hangup",
            door.hang_up,
            "End a call. The response is sent when the call has ended.",
            _TAG,
            error_codes=("call_not_found",),
            scope="talk",
        ),
    )
