"""Checks a session description before aiortc sees it, so that a bad one gets a clear error."""

import re
from collections import Counter
from collections.abc import Iterator

from aiortc.sdp import DIRECTIONS, MediaDescription, SessionDescription

from core.errors import PayloadTooLarge, RequestError

MAX_SDP_BYTES = 64 * 1024
"Largest description. A browser's offer has 3-10 kB; every line of it is parsed and kept."

MAX_MEDIA_SECTIONS = 8
"Most media sections. We answer one audio and one data section; each further one costs objects."

MAX_LINES_PER_SECTION = {
    "a=rtpmap": 128,
    "a=fmtp": 128,
    "a=rtcp-fb": 256,
    "a=rtcp-fb:*": 32,
    "a=ssrc": 256,
}
"""Most lines of each kind in one section. A payload type has seven bits. A browser's video section
has some 60 of them, 150 lines of feedback and 20 of sources. aiortc goes through all codecs for
each of these lines: 64 KiB of them took it 8 s."""

SDP_ERRORS = (
    *(ValueError, AssertionError, IndexError, KeyError, TypeError, AttributeError, StopIteration),
)
"""Exceptions that aiortc raises on a description with an error that it does not expect. The last
one occurs if `a=fmtp:` or `a=rtcp-fb:` names a payload type that the section does not have."""

DEFAULT_MAX_MESSAGE_BYTES = 64 * 1024
"Largest message of a data channel whose description does not state it (RFC 8841 section 6.1)."

_MAX_MESSAGE = re.compile(r"^a=max-message-size:(\d{1,18})\s*$", re.MULTILINE)

_DIRECTION_LINES = tuple(f"a={direction}" for direction in DIRECTIONS)


def checked_sdp(sdp: str) -> str:
    """Checks a description and returns it in the form that aiortc needs.

    Candidates are removed, because aiortc reads those of the last section, which with max-bundle
    has none: see `media.webrtc.ice.candidates.candidates_in`. The end-of-candidates mark is removed
    so that ICE waits for the peer's own checks until our timeout. A section without a direction is
    sendrecv (RFC 8866 section 6.7); aiortc needs it written out.

    Raises PayloadTooLarge, or RequestError with code invalid_sdp, sdp_without_audio or
    sdp_without_opus.
    """
    if len(sdp) > MAX_SDP_BYTES:
        raise PayloadTooLarge(
            f"SDP of {len(sdp)} bytes, limit {MAX_SDP_BYTES}", code="sdp_too_large"
        )
    _check_lines(sdp)
    _check_media(_parsed(sdp))
    lines = [line for line in sdp.splitlines() if not _is_dropped(line)]
    return "\r\n".join(_with_directions(lines)) + "\r\n"


def max_message_bytes(sdp: str) -> int | None:
    """Returns the largest message that the description's data channel accepts; None: any size, or
    there is no channel.

    RFC 8841 section 6.1: the default is 64 KiB, and 0 means no limit.
    """
    if "m=application" not in sdp:
        return None
    declared = _MAX_MESSAGE.search(sdp)
    return (int(declared[1]) or None) if declared else DEFAULT_MAX_MESSAGE_BYTES


def _with_directions(lines: list[str]) -> Iterator[str]:
    """Yields the lines with a direction in every section. The session's direction holds for all
    sections without one; data sections have none."""
    inherited, is_session, is_missing = "a=sendrecv", True, False
    for line in lines:
        if line.startswith("m="):
            if is_missing:
                yield inherited
            is_missing = not line.startswith("m=application")
            is_session = False
        elif line in _DIRECTION_LINES:
            inherited = line if is_session else inherited
            is_missing = False
        yield line
    if is_missing:
        yield inherited


def _is_dropped(line: str) -> bool:
    return line.startswith(("a=candidate:", "a=end-of-candidates"))


def _check_lines(sdp: str) -> None:
    seen: Counter[str] = Counter()
    for line in sdp.splitlines():
        if line.startswith("m="):
            seen.clear()
        name = "a=rtcp-fb:*" if line.startswith("a=rtcp-fb:*") else line.partition(":")[0]
        seen[name] += 1
        if seen[name] > MAX_LINES_PER_SECTION.get(name, MAX_SDP_BYTES):
            limit = MAX_LINES_PER_SECTION[name]
            raise PayloadTooLarge(
                f"SDP with more than {limit} lines of {name} in one section", code="sdp_too_large"
            )


def _parsed(sdp: str) -> SessionDescription:
    if not sdp.startswith("v=0"):
        raise RequestError("this is not SDP: it must start with v=0", code="invalid_sdp")
    try:
        return SessionDescription.parse(sdp)
    except SDP_ERRORS as exc:
        raise RequestError("this SDP cannot be parsed", code="invalid_sdp") from exc


def _check_media(description: SessionDescription) -> None:
    if len(description.media) > MAX_MEDIA_SECTIONS:
        raise PayloadTooLarge(
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
    _check_names(description)


def _check_names(description: SessionDescription) -> None:
    """Raises RequestError for inconsistent mids. aiortc would remove the transport of a bundled
    section before it looks for the other section."""
    names = [media.rtp.muxId for media in description.media]
    if len(set(names)) < len(names):
        raise RequestError("two sections of this SDP have one mid", code="invalid_sdp")
    if any(name not in names for group in description.group for name in group.items):
        raise RequestError("this SDP bundles a mid that it does not have", code="invalid_sdp")


def _check_transport(media: MediaDescription) -> None:
    if media.ice is None or not media.ice.usernameFragment or not media.ice.password:
        raise RequestError("this SDP has no ICE ufrag and pwd", code="invalid_sdp")
    if media.dtls is None or not media.dtls.fingerprints:
        raise RequestError("this SDP has no DTLS fingerprint", code="invalid_sdp")
