"""`application/trickle-ice-sdpfrag` (RFC 8840, section 9), and If-Match; no I/O."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from core.errors import PayloadTooLarge, RequestError
from media.webrtc.ice.candidates import MAX_CANDIDATES

MAX_FRAGMENT_BYTES = 64 * 1024
"As for an offer; a candidate has 150 bytes."

ANY = "*"

_LINE = re.compile(r"[a-z]=.*")
_UFRAG = re.compile(r"[A-Za-z0-9+/]{4,256}")
_PASSWORD = re.compile(r"[A-Za-z0-9+/]{22,256}")
_MID = re.compile(r"^a=mid:([^\r\n]*)", re.MULTILINE)
_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


@dataclass(frozen=True, slots=True)
class SdpFragment:
    """What one PATCH says."""

    ufrag: str | None
    "None: it does not say; it means the ICE session that there is."
    candidates: tuple[str, ...]
    "As `candidate:...`; those of another ICE session are left out (RFC 8838, section 11)."
    password: str | None = field(default=None, repr=False)


def read_fragment(data: bytes) -> SdpFragment:
    """Raises RequestError invalid_sdp_fragment, TooLarge."""
    if len(data) > MAX_FRAGMENT_BYTES:
        raise PayloadTooLarge(f"a fragment of {len(data)} bytes, limit {MAX_FRAGMENT_BYTES}")
    try:
        lines = [line for line in data.decode().splitlines() if line]
    except UnicodeDecodeError:
        raise _bad("not UTF-8") from None
    if wrong := next((line for line in lines if not _LINE.fullmatch(line)), None):
        raise _bad(f"no line of SDP: {wrong[:100]!r}")
    ufrag = _the_one(lines, "ice-ufrag", _UFRAG)
    password = _the_one(lines, "ice-pwd", _PASSWORD)
    found = [line.removeprefix("a=") for line in lines if line.startswith("a=candidate:")]
    if len(found) > MAX_CANDIDATES:
        raise PayloadTooLarge(f"{len(found)} candidates, limit {MAX_CANDIDATES}")
    if ufrag is None and not found and "a=end-of-candidates" not in lines:
        raise _bad("it has neither candidates nor an ice-ufrag")
    ours = tuple(one for one in found if _ufrag_in(one) in (None, ufrag))
    return SdpFragment(ufrag, ours, password)


def write_fragment(mid: str, ufrag: str, password: str, candidates: Iterable[str]) -> str:
    """Our side of a new ICE session; all of it, as we do not trickle."""
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
    """Of an offer's audio section."""
    start = re.search(r"^m=audio ", sdp, re.MULTILINE)
    match = _MID.search(sdp, start.end()) if start else None
    return match[1] if match else "0"


def ufrag_of(sdp: str) -> str | None:
    """The offer's; of the first section where they differ, as we bundle."""
    match = re.search(r"^a=ice-ufrag:([^\r\n]*)", sdp, re.MULTILINE)
    return match[1] if match else None


def check_if_match(header: str | None, etag: str) -> bool:
    """Whether the client asks for a restart, `*`; else it means the ICE session that there is.

    Raises RequestError if_match_required or etag_mismatch. (RFC 9725, 4.3.1; RFC 9110, 13.1.1)
    """
    if header is None:
        raise RequestError("If-Match must name the ETag of the answer", code="if_match_required")
    if header.strip() in (ANY, f'"{ANY}"'):  # the RFC's own example quotes it
        return True
    if etag not in _ETAG.findall(header):  # a weak one is another text
        raise RequestError("If-Match names another ICE session", code="etag_mismatch")
    return False


def _the_one(lines: list[str], name: str, pattern: re.Pattern[str]) -> str | None:
    """An attribute that may stand in each section, but is the same in all."""
    values = {line.partition(":")[2] for line in lines if line.startswith(f"a={name}:")}
    if len(values) > 1:
        raise _bad(f"more than one {name}")
    value = values.pop() if values else None
    if value is not None and not pattern.fullmatch(value):
        raise _bad(f"a wrong {name}")
    return value


def _ufrag_in(candidate: str) -> str | None:
    words = candidate.split()
    return words[words.index("ufrag") + 1] if "ufrag" in words[8:-1] else None


def _bad(why: str) -> RequestError:
    return RequestError(f"this is no SDP fragment: {why}", code="invalid_sdp_fragment")
