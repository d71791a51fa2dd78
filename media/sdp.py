"""Checks a session description before aiortc sees it, so that a bad one gets a clear answer."""

from aiortc.sdp import MediaDescription, SessionDescription

from core.errors import RequestError, TooLarge

MAX_SDP_BYTES = 64 * 1024
"A browser's offer has 3-10 kB; every line of it is parsed and kept."

MAX_MEDIA_SECTIONS = 8
"We answer one audio and one data section; each further one costs objects."

_PARSER_ERRORS = (ValueError, AssertionError, IndexError, KeyError, TypeError, AttributeError)
"What aiortc's parser raises on text that is no SDP."


def checked_sdp(sdp: str) -> str:
    """The description as aiortc should get it.

    Raises TooLarge, or RequestError with code invalid_sdp, sdp_without_audio or sdp_without_opus.

    Host names (`.local`, by which browsers hide addresses) are taken out, because resolving them
    delays the answer by a second; the peer's own checks tell us where it is. And so is the end of
    candidates: without it, ICE waits for those checks until our timeout.
    """
    if len(sdp) > MAX_SDP_BYTES:
        raise TooLarge(f"SDP of {len(sdp)} bytes, limit {MAX_SDP_BYTES}", code="sdp_too_large")
    _check_media(_parsed(sdp))
    lines = [line for line in sdp.splitlines() if not _is_dropped(line)]
    return "\r\n".join(lines) + "\r\n"


def _is_dropped(line: str) -> bool:
    if line.startswith("a=candidate:"):
        fields = line.split()
        return len(fields) > 4 and fields[4].endswith(".local")
    return line.startswith("a=end-of-candidates")


def _parsed(sdp: str) -> SessionDescription:
    if not sdp.startswith("v=0"):
        raise RequestError("this is not SDP: it must start with v=0", code="invalid_sdp")
    try:
        return SessionDescription.parse(sdp)
    except _PARSER_ERRORS as exc:
        raise RequestError("this SDP cannot be parsed", code="invalid_sdp") from exc


def _check_media(description: SessionDescription) -> None:
    if len(description.media) > MAX_MEDIA_SECTIONS:
        raise TooLarge(
            f"SDP with {len(description.media)} media sections, limit {MAX_MEDIA_SECTIONS}",
            code="sdp_too_large",
        )
    audio = [media for media in description.media if media.kind == "audio" and media.port]
    if not audio:
        raise RequestError("this SDP has no audio section", code="sdp_without_audio")
    if not any(codec.mimeType.lower() == "audio/opus" for codec in audio[0].rtp.codecs):
        raise RequestError("the audio section does not offer Opus", code="sdp_without_opus")
    for media in description.media:
        _check_transport(media)


def _check_transport(media: MediaDescription) -> None:
    if media.ice is None or not media.ice.usernameFragment or not media.ice.password:
        raise RequestError("this SDP has no ICE ufrag and pwd", code="invalid_sdp")
    if media.dtls is None or not media.dtls.fingerprints:
        raise RequestError("this SDP has no DTLS fingerprint", code="invalid_sdp")
