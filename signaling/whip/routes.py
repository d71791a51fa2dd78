"""Routes of the WHIP door, with their descriptions for the API's documentation."""

from core.http.routes import Route
from signaling.whip.door import PATH, SDP_FRAGMENT, WhipDoor
from signaling.whip.offer import MAX_OFFER_BYTES, SDP
from signaling.whip.sdp_fragment import MAX_FRAGMENT_BYTES

_TAG = "whip"
_ONE = f"{PATH}/{{publication_id}}"
_QUERY = {
    "language": "Of what is said (ISO 639-1); without it, as far as the recogniser can tell.",
    "model": "A recogniser that `GET /earshot/engines` lists.",
    "video": "`ignore`: answer video as inactive, for senders that cannot do without.",
}
_GONE = "publication_not_found"
_HEADERS = {
    "Location": "`/whip/whip_...`: the publication, for trickling, its events, and its end.",
    "ETag": "The ICE session, for If-Match.",
    "Link": "STUN and TURN servers (`rel=ice-server`), with credentials of its own.",
}


def whip_routes(door: WhipDoor) -> tuple[Route, ...]:
    return (*_endpoint(door), _patch(door), *_one(door))


def _endpoint(door: WhipDoor) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            PATH,
            door.publish,
            "Publish sound over WebRTC: an SDP offer in, the answer out (WHIP, RFC 9725).",
            _TAG,
            request_content_types=(SDP,),
            responses={201: None},
            response_content_type=SDP,
            response_headers=_HEADERS,
            query=_QUERY,
            error_codes=(
                "draining",
                "invalid_sdp",
                "invalid_value",
                "model_not_found",
                "no_ice_candidates",
                "offer_not_acceptable",
                "sdp_too_large",
                "server_full",
                "too_large",
                "unsupported_language",
                "unsupported_media_type",
            ),
            max_body_bytes=MAX_OFFER_BYTES,
        ),
        Route("GET", PATH, door.probe, "Whether it is there.", _TAG, responses={204: None}),
        Route("OPTIONS", PATH, door.options, "What it takes: `Accept-Post`.", _TAG),
    )


def _patch(door: WhipDoor) -> Route:
    return Route(
        "PATCH",
        _ONE,
        door.trickle,
        "Candidates found later, If-Match names the ETag; or ICE anew, If-Match is `*`.",
        _TAG,
        request_content_types=(SDP_FRAGMENT,),
        responses={200: None, 204: None},
        response_content_type=SDP_FRAGMENT,
        response_headers={"ETag": "Of a restart: the new ICE session."},
        error_codes=(
            _GONE,
            "etag_mismatch",
            "ice_not_connected",
            "if_match_required",
            "invalid_candidate",
            "invalid_sdp_fragment",
            "too_large",
            "too_many_candidates",
            "unknown_ice_session",
            "unsupported_media_type",
        ),
        max_body_bytes=MAX_FRAGMENT_BYTES,
    )


def _one(door: WhipDoor) -> tuple[Route, ...]:
    return (
        Route(
            "DELETE",
            _ONE,
            door.end,
            "End it; answered when it is over.",
            _TAG,
            error_codes=(_GONE,),
        ),
        Route(
            "GET",
            _ONE,
            door.probe_one,
            "Whether it lives.",
            _TAG,
            responses={204: None},
            error_codes=(_GONE,),
        ),
        Route("OPTIONS", _ONE, door.options_of_one, "What it takes: `Accept-Patch`.", _TAG),
        Route(
            "GET",
            f"{_ONE}/events",
            door.events,
            "What is said: `hypothesis`, `completed`, `failed`, `closed`. Last-Event-ID goes on.",
            _TAG,
            response_content_type="text/event-stream",
            error_codes=(_GONE, "too_many_readers"),
        ),
    )
