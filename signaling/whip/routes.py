"""Routes of the WHIP door, with their descriptions for the API's documentation."""

from core.http.routes import Route
from signaling.whip.door import PATH, SDP_FRAGMENT, WhipDoor
from signaling.whip.offer import MAX_OFFER_BYTES, SDP
from signaling.whip.sdp_fragment import MAX_FRAGMENT_BYTES

_TAG = "whip"
_PUBLICATION_PATH = f"{PATH}/{{publication_id}}"
_QUERY = {
    "language": (
        "Spoken language (ISO 639-1). Without it, the recogniser detects the language if it can."
    ),
    "model": "Name of a recogniser that `GET /earshot/engines` lists.",
    "video": "`ignore`: accept video as inactive, for senders that cannot leave it out.",
}
_NOT_FOUND_ERROR = "publication_not_found"
_HEADERS = {
    "Location": (
        "Path of the publication, `/whip/whip_...`, for later candidates, its events and its end."
    ),
    "ETag": "Tag of the ICE session, for If-Match.",
    "Link": "STUN and TURN servers (`rel=ice-server`), with credentials for this publication.",
}


def whip_routes(door: WhipDoor) -> tuple[Route, ...]:
    return (*_endpoint(door), _patch(door), *_publication_routes(door))


def _endpoint(door: WhipDoor) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            PATH,
            door.publish,
            "Publish audio over WebRTC (WHIP, RFC 9725): send an SDP offer, get the SDP answer.",
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
            scope="talk",
        ),
        Route(
            "GET",
            PATH,
            door.probe,
            "Check that the WHIP endpoint exists.",
            _TAG,
            responses={204: None},
            scope="talk",
        ),
        Route(
            "OPTIONS",
            PATH,
            door.options,
            "Show the accepted content type in the header `Accept-Post`.",
            _TAG,
            scope="talk",
        ),
    )


def _patch(door: WhipDoor) -> Route:
    return Route(
        "PATCH",
        _PUBLICATION_PATH,
        door.trickle,
        "Add later ICE candidates (If-Match: the ETag), or restart ICE (If-Match: `*`).",
        _TAG,
        request_content_types=(SDP_FRAGMENT,),
        responses={200: None, 204: None},
        response_content_type=SDP_FRAGMENT,
        response_headers={"ETag": "After an ICE restart: tag of the new ICE session."},
        error_codes=(
            _NOT_FOUND_ERROR,
            "etag_mismatch",
            "ice_not_connected",
            "ice_restart_unsupported",
            "if_match_required",
            "invalid_candidate",
            "invalid_sdp_fragment",
            "too_large",
            "too_many_candidates",
            "unknown_ice_session",
            "unsupported_media_type",
        ),
        max_body_bytes=MAX_FRAGMENT_BYTES,
        scope="talk",
    )


def _publication_routes(door: WhipDoor) -> tuple[Route, ...]:
    return (
        Route(
            "DELETE",
            _PUBLICATION_PATH,
            door.end,
            "End a publication. The response is sent when it has ended.",
            _TAG,
            error_codes=(_NOT_FOUND_ERROR,),
            scope="talk",
        ),
        Route(
            "GET",
            _PUBLICATION_PATH,
            door.probe_publication,
            "Check that a publication still exists.",
            _TAG,
            responses={204: None},
            error_codes=(_NOT_FOUND_ERROR,),
            scope="talk",
        ),
        Route(
            "OPTIONS",
            _PUBLICATION_PATH,
            door.publication_options,
            "Show the accepted content type in the header `Accept-Patch`.",
            _TAG,
            scope="talk",
        ),
        Route(
            "GET",
            f"{_PUBLICATION_PATH}/events",
            door.events,
            "Receive the transcript as server-sent events: `hypothesis`, `completed`, `failed`,"
            " `closed`. Last-Event-ID resumes.",
            _TAG,
            response_content_type="text/event-stream",
            error_codes=(_NOT_FOUND_ERROR, "too_many_readers"),
            scope="talk",
        ),
    )
