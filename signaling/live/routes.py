"""Routes of GPT-Live's door, with their descriptions for the API's documentation."""

from dataclasses import replace

from core.http.routes import Route
from signaling.live.door import LiveDoor
from signaling.live.schema import LiveCallAnswer, LiveCallRequest

_TAG = "live"
_SESSION = (
    *("server_full", "draining", "model_not_found", "unsupported_parameter", "voice_not_found"),
    *("invalid_json", "invalid_type", "invalid_value", "missing_required_parameter"),
    *("unknown_parameter", "cannot_update_type", "event_too_large"),
)
"Error codes of a session object."
_OFFER = ("invalid_sdp", "sdp_without_audio", "sdp_without_opus", "sdp_too_large")
"Error codes of an SDP offer."


def routes(door: LiveDoor) -> tuple[Route, ...]:
    """Returns the routes of the door. A client secret opens them, as it opens Realtime sessions."""
    secrets = door.secrets
    own = _routes(door)
    return own if secrets is None else tuple(replace(r, admits=secrets.check) for r in own)


def _routes(door: LiveDoor) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/live/sessions",
            door.websocket,
            "Open a GPT-Live session over a WebSocket: the first event is `session.start`.",
            _TAG,
            responses={101: None},
            error_codes=("websocket_expected",),
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/live/sessions",
            door.call,
            "Start a GPT-Live session over WebRTC: send a session and an SDP offer, get the"
            " session's id and the SDP answer. Events use the data channel `oai-events`.",
            _TAG,
            request=LiveCallRequest,
            responses={201: LiveCallAnswer},
            error_codes=(*_SESSION, *_OFFER),
            scope="talk",
        ),
        Route(
            "GET",
            "/v1/live/sessions/{session_id}/attach",
            door.attach,
            "Attach a second WebSocket to a GPT-Live session: it receives the events and the sound"
            " of the session from now on, and may send events.",
            _TAG,
            responses={101: None},
            error_codes=("websocket_expected", "call_not_found", "too_many_asides"),
            scope="talk",
        ),
        Route(
            "POST",
            "/v1/live/sessions/{session_id}/hangup",
            door.hang_up,
            "End a GPT-Live session over WebRTC. The response is sent when it has ended.",
            _TAG,
            error_codes=("call_not_found",),
            scope="talk",
        ),
    )
