"""Checks a session description before aiortc sees it, so that a bad one gets a clear answer."""

import re
from collections import Counter
from collections.abc import Iterator

from aiortc.sdp import DIRECTIONS, MediaDescription, SessionDescription

from core.errors import PayloadTooLarge, RequestError

MAX_SDP_BYTES = 64 * 1024
"A browser's offer has 3-10 kB; every line of it is parsed and kept."

MAX_MEDIA_SECTIONS = 8
"We answer one audio and one data section; each further one costs objects."

MAX_LINES_PER_SECTION = {
    "a=rtpmap": 128,
    "a=fmtp": 128,
    "a=rtcp-fb": 256,
    "a=rtcp-fb:*": 32,
    "a=ssrc": 256,
}
"""A payload type has seven bits; a browser's video section has some 60 of them, 150 of feedback and
20 of sources. aiortc looks at every codec for each of these lines: 64 KiB of them took it 8 s."""

SDP_ERRORS = (
    *(ValueError, AssertionError, IndexError, KeyError, TypeError, AttributeError, StopIteration),
)
"""What aiortc raises on a description that is wrong in a way it does not expect; the last one where
`a=fmtp:` or `a=rtcp-fb:` names a payload type that the section does not have."""

DEFAULT_MAX_MESSAGE_BYTES = 64 * 1024

_MAX_MESSAGE = re.compile(r"^a=max-message-size:(\d{1,18})\s*$", re.MULTILINE)

_DIRECTION_LINES = tuple(f"a={direction}" for direction in DIRECTIONS)


def checked_sdp(sdp: str) -> str:
    """The description as aiortc should get it.

    Raises TooLarge, or RequestError with code invalid_sdp, sdp_without_audio or sdp_without_opus.

    Candidates are taken out, because aiortc reads those of the last section, which with max-bundle
    has none: see `media.webrtc.ice.candidates.candidates_in`. And so is their end: without it, ICE
    waits for the peer's own checks until our timeout. A section that says no direction is sendrecv
    (RFC 8866 section 6.7); aiortc has to be told.
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
    """Of one message on its data channels; None: of any size, or it has none.

    RFC 8841 section 6.1: 64 KiB if it does not say, and 0 is no limit.
    """
    if "m=application" not in sdp:
        return None
    said = _MAX_MESSAGE.search(sdp)
    return (int(said[1]) or None) if said else DEFAULT_MAX_MESSAGE_BYTES


def _with_directions(lines: list[str]) -> Iterator[str]:
    """The session's direction is that of all sections without one; data sections have none."""
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
    """aiortc takes the transport of a bundled section away before it looks for the other one."""
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
