"""Parses `application/trickle-ice-sdpfrag` (RFC 8840, section 9) and If-Match. No I/O."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from core.errors import PayloadTooLarge, RequestError
from media.webrtc.ice.candidates import MAX_CANDIDATES

MAX_FRAGMENT_BYTES = 64 * 1024
"Limit of a fragment, the same as for an offer; one candidate has 150 bytes."

ANY = "*"
"Value of If-Match that asks for an ICE restart."

_LINE = re.compile(r"[a-z]=.*")
_UFRAG = re.compile(r"[A-Za-z0-9+/]{4,256}")
_PASSWORD = re.compile(r"[A-Za-z0-9+/]{22,256}")
_MID = re.compile(r"^a=mid:([^\r\n]*)", re.MULTILINE)
_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


@dataclass(frozen=True, slots=True)
class SdpFragment:
    """Content of one PATCH."""

    ufrag: str | None
    "ICE user name fragment. None: not given; the fragment is for the current ICE session."
    candidates: tuple[str, ...]
    "Candidates as `candidate:...`, without those of another ICE session (RFC 8838, section 11)."
    password: str | None = field(default=None, repr=False)


def read_fragment(data: bytes) -> SdpFragment:
    """Parses a fragment. Raises RequestError invalid_sdp_fragment or PayloadTooLarge."""
    if len(data) > MAX_FRAGMENT_BYTES:
        raise PayloadTooLarge(f"a fragment of {len(data)} bytes, limit {MAX_FRAGMENT_BYTES}")
    try:
        lines = [line for line in data.decode().splitlines() if line]
    except UnicodeDecodeError:
        raise _bad("not UTF-8") from None
    if wrong := next((line for line in lines if not _LINE.fullmatch(line)), None):
        raise _bad(f"not a line of SDP: {wrong[:100]!r}")
    ufrag = _common_attribute(lines, "ice-ufrag", _UFRAG)
    password = _common_attribute(lines, "ice-pwd", _PASSWORD)
    found = [line.removeprefix("a=") for line in lines if line.startswith("a=candidate:")]
    if len(found) > MAX_CANDIDATES:
        raise PayloadTooLarge(f"{len(found)} candidates, limit {MAX_CANDIDATES}")
    if ufrag is None and not found and "a=end-of-candidates" not in lines:
        raise _bad("it has neither candidates nor an ice-ufrag")
    ours = tuple(line for line in found if _ufrag_in(line) in (None, ufrag))
    return SdpFragment(ufrag, ours, password)


def write_fragment(mid: str, ufrag: str, password: str, candidates: Iterable[str]) -> str:
    """Writes our side of a new ICE session. It is complete, as we do not trickle."""
    lines = (
        "a=ice-options:trickle",
        f"a=group:BUNDLE {mid}",
        "m=audio 9 UDP/TLS/RTP/SAVPF 0",
        f"a=mid:{mid}",
        f"a=ice-ufrag:{ufrag}",
        f"a=ice-pwd:{password}",
        *(f"a={candidate}" for candidate in candidates),
        "a=end-of-candidates",
    )
    return "".join(f"{line}\r\n" for line in lines)


def mid_of(sdp: str) -> str:
    """Returns the mid of an offer's audio section, or "0"."""
    start = re.search(r"^m=audio ", sdp, re.MULTILINE)
    match = _MID.search(sdp, start.end()) if start else None
    return match[1] if match else "0"


def ufrag_of(sdp: str) -> str | None:
    """Returns the offer's ICE user name fragment. If the sections differ, that of the first counts,
    as we bundle."""
    match = re.search(r"^a=ice-ufrag:([^\r\n]*)", sdp, re.MULTILINE)
    return match[1] if match else None


def check_if_match(header: str | None, etag: str) -> bool:
    """Returns True for an ICE restart (`*`), False if the header names the current ICE session.
    Raises RequestError if_match_required or etag_mismatch (RFC 9725, 4.3.1; RFC 9110, 13.1.1)."""
    if header is None:
        raise RequestError("If-Match must name the ETag of the answer", code="if_match_required")
    if header.strip() in (ANY, f'"{ANY}"'):  # the example in the RFC has quotes around it
        return True
    if etag not in _ETAG.findall(header):  # a weak ETag is a different text and does not match
        raise RequestError("If-Match names another ICE session", code="etag_mismatch")
    return False


def _common_attribute(lines: list[str], name: str, pattern: re.Pattern[str]) -> str | None:
    """Returns an attribute that may stand in each section but must be the same in all."""
    values = {line.partition(":")[2] for line in lines if line.startswith(f"a={name}:")}
    if len(values) > 1:
        raise _bad(f"more than one {name}")
    value = values.pop() if values else None
    if value is not None and not pattern.fullmatch(value):
        raise _bad(f"an invalid {name}")
    return value


def _ufrag_in(candidate: str) -> str | None:
    words = candidate.split()
    return words[words.index("ufrag") + 1] if "ufrag" in words[8:-1] else None


def _bad(why: str) -> RequestError:
    return RequestError(f"this is not an SDP fragment: {why}", code="invalid_sdp_fragment")
