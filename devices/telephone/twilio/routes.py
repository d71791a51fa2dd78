"""Routes of the Twilio door. They need no key of the server: Twilio's signature decides."""

from core.http.routes import Route
from devices.telephone.twilio.door import (
    CALL_PATH,
    MAX_FORM_BYTES,
    STREAM_PATH,
    TwilioDoor,
)

_TAG = "telephone"


def routes(door: TwilioDoor) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            CALL_PATH,
            door.answer,
            "Answer Twilio's question what to do with a call, with TwiML that connects its stream.",
            _TAG,
            response_content_type="text/xml",
            error_codes=("invalid_twilio_signature", "invalid_value"),
            is_public=True,
            max_body_bytes=MAX_FORM_BYTES,
            scope="talk",
        ),
        Route(
            "GET",
            STREAM_PATH,
            door.stream,
            "Connect the stream of a call: Twilio Media Streams over a WebSocket.",
            _TAG,
            responses={101: None},
            error_codes=("invalid_twilio_signature", "server_full", "websocket_expected"),
            is_public=True,
            scope="talk",
        ),
    )
