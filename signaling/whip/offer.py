"""Checks a WHIP offer: it must be audio sent to us (RFC 9725, section 4.4). No I/O."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from core.errors import PayloadTooLarge, RequestError
from pipeline.shared.settings import SessionSettings

SDP = "application/sdp"

MAX_OFFER_BYTES = 64 * 1024
"Limit of an offer. A browser's has 3 to 10 kB."

_DIRECTION = re.compile(r"^a=(sendrecv|sendonly|recvonly|inactive)\r?$", re.MULTILINE)
"Direction of a section, or of the whole session description."
_MEDIA = re.compile(r"^m=(\S+) (\d+)", re.MULTILINE)
"First line of a section, with its kind and port. Port 0 means that it is not used."

UNACCEPTABLE = "offer_not_acceptable"


def read_offer(data: bytes, query: Mapping[str, str]) -> str:
    """Returns a valid offer as text. Video is refused instead of ignored (4.4.3): otherwise a user
    could believe that it is seen. Clients that cannot send without video use `video=ignore`. Raises
    PayloadTooLarge, or RequestError invalid_sdp, offer_not_acceptable or invalid_value."""
    if len(data) > MAX_OFFER_BYTES:
        raise PayloadTooLarge(f"an offer of {len(data)} bytes, limit {MAX_OFFER_BYTES}")
    try:
        sdp = data.decode()
    except UnicodeDecodeError:
        raise RequestError("This is not SDP: it is not UTF-8.", code="invalid_sdp") from None
    if not sdp.startswith("v=0"):
        raise RequestError("This is not SDP: it must start with v=0.", code="invalid_sdp")
    media = list(_sections(sdp))
    audio = [direction for kind, direction in media if kind == "audio"]
    if len(audio) != 1:
        raise _unacceptable(f"it must have exactly one audio section, not {len(audio)}")
    if audio[0] not in ("sendonly", "sendrecv"):
        raise _unacceptable(f"its audio is {audio[0]}; it must be sendonly")
    ignored = {"audio", "application"} | ({"video"} if ignores_video(query) else set())
    if other := next((kind for kind, _ in media if kind not in ignored), None):
        hint = "; with ?video=ignore it is answered as inactive" if other == "video" else ""
        raise _unacceptable(f"only audio is accepted, not {other[:20]}{hint}")
    return sdp


def ignores_video(query: Mapping[str, str]) -> bool:
    """Returns True if the query says `video=ignore`. Raises RequestError for any other value."""
    value = query.get("video")
    if value not in (None, "ignore"):
        raise RequestError(
            "'video' must be 'ignore', or be left out.", code="invalid_value", param="video"
        )
    return value is not None


def settings_of(query: Mapping[str, str], initial_settings: SessionSettings) -> SessionSettings:
    """Returns settings for transcription only, with the query's `language` and `model`."""
    return replace(
        initial_settings,
        answers=False,
        language=query.get("language") or initial_settings.language,
        asr=query.get("model") or initial_settings.asr,
    )


def with_whip_code(error: RequestError) -> RequestError:
    """Gives valid SDP that we cannot accept the code for status 422 (4.4.3). Other errors stay as
    they are."""
    if error.code in ("sdp_without_audio", "sdp_without_opus"):
        return _unacceptable(str(error))
    return error


def _sections(sdp: str) -> Iterator[tuple[str, str]]:
    """Yields kind and direction of each section in use."""
    starts = list(_MEDIA.finditer(sdp))
    session = sdp[: starts[0].start()] if starts else sdp
    inherited = _direction(session, "sendrecv")
    ends = [*(match.start() for match in starts[1:]), len(sdp)]
    for match, end in zip(starts, ends, strict=False):
        if match[2] != "0":
            yield match[1], _direction(sdp[match.start() : end], inherited)


def _direction(text: str, default: str) -> str:
    match = _DIRECTION.search(text)
    return match[1] if match else default


def _unacceptable(why: str) -> RequestError:
    return RequestError(f"This offer cannot be accepted: {why}.", code=UNACCEPTABLE)
