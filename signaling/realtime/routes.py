"""Routes of the Realtime door, with their descriptions for the API's documentation."""

from dataclasses import replace

from core.http.routes import JSON, Route
from signaling.realtime.client_secrets import ClientSecretRequest, ClientSecretResponse
from signaling.realtime.door import RealtimeDoor
from signaling.realtime.session.offer import FORM, SDP, CallForm

_TAG = "realtime"
_QUERY = {
    "model": "`default`, or the name of a language model engine.",
    "conversation_id": "Go on with this conversation; an unknown id begins a new one under it.",
    "intent": "`transcription`: only write down what is heard.",
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
_MINTING = (
    "invalid_json",
    "invalid_type",
    "invalid_value",
    "missing_required_parameter",
    "unknown_parameter",
    "unsupported_parameter",
)
"Error codes of requests for a client secret."
_LOCATION = {"Location": "`/v1/realtime/calls/rtc_...`: the call, for hanging up."}


def routes(door: RealtimeDoor) -> tuple[Route, ...]:
    """Returns the routes of the door; those for client secrets only if it makes them."""
    secrets = door.secrets
    if secrets is None:
        return (*_ways_in(door), *_call_routes(door))
    opened = (replace(r, admits=secrets.knows) for r in (*_ways_in(door), *_call_routes(door)))
    return (*opened, *_minting(door))


def _minting(door: RealtimeDoor) -> tuple[Route, ...]:
    key = Route(
        "POST",
        "/v1/realtime/client_secrets",
        door.client_secret,
        "An ephemeral key for a browser: it opens sessions as described here, until it expires.",
        _TAG,
        request=ClientSecretRequest,
        responses={200: ClientSecretResponse},
        error_codes=(*_MINTING, "too_large", "too_many_client_secrets"),
    )
    beta = replace(
        key,
        path="/v1/realtime/sessions",
        handler=door.beta_session,
        summary="The same for clients of the beta: a flat session in, and out with its key.",
        request=None,
        request_content_types=(JSON,),
        responses={200: None},
    )
    path = "/v1/realtime/transcription_sessions"
    written = replace(beta, path=path, handler=door.beta_transcription_session)
    return key, beta, written


def _ways_in(door: RealtimeDoor) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/realtime",
            door.websocket,
            "Talk over a WebSocket: Realtime events as JSON text, audio in them as pcm16 24 kHz.",
            _TAG,
            responses={101: None},
            query={**_QUERY, "call_id": "Follow this call over WebRTC, and send events to it."},
            error_codes=("websocket_expected", "call_not_found", "too_many_asides", *_ADMISSION),
        ),
        Route(
            "POST",
            "/v1/realtime/calls",
            door.call,
            "Talk over WebRTC: an SDP offer in, the answer out; events on channel `oai-events`.",
            _TAG,
            request=CallForm,
            request_content_types=(FORM, SDP),
            responses={201: None},
            response_content_type=SDP,
            response_headers=_LOCATION,
            query=_QUERY,
            error_codes=(*_OFFER, *_SESSION),
        ),
        Route(
            "POST",
            "/v1/realtime",
            door.legacy_call,
            "The same for clients of the beta: a raw SDP offer.",
            _TAG,
            request_content_types=(SDP,),
            responses={201: None},
            response_content_type=SDP,
            response_headers=_LOCATION,
            query=_QUERY,
            error_codes=_OFFER,
        ),
    )


def _call_routes(door: RealtimeDoor) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            "/v1/realtime/calls/{call_id}",
            door.offer_again,
            "No call takes a second offer; the error says whether there is such a call.",
            _TAG,
            request_content_types=(SDP,),
            responses={},
            error_codes=("call_not_found", "call_already_answered"),
        ),
        Route(
            "POST",
            "/v1/realtime/calls/{call_id}/hangup",
            door.hang_up,
            "End a call; answered when it is over.",
            _TAG,
            error_codes=("call_not_found",),
        ),
    )
