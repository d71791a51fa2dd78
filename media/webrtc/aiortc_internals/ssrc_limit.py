"""A caller's sources of sound, bounded: aiortc and libsrtp keep each that they ever heard of.

Who has the call's keys can name another source (SSRC) in every packet. What comes from too many of
them is dropped behind decryption, where a stranger's forgeries are gone already, and libsrtp is
told to forget the source.
"""

import logging
from typing import Any

from aiortc import RTCDtlsTransport, RTCRtpReceiver

from media.webrtc.aiortc_internals.names import require_private_names

logger = logging.getLogger(__name__)

MAX_SOURCES = 31
"""A report has room for so many (RFC 3550 section 6.4.2). A browser has one, and one more for each
microphone that it changes to by a new track."""

_RTP, _RTCP, _SRTP = "_handle_rtp_data", "_handle_rtcp_data", "_rx_srtp"


def limit_ssrcs(receiver: RTCRtpReceiver) -> None:
    """On the transport that the receiver has, and on each that it is given.

    Raises EarshotError if this aiortc takes packets elsewhere.
    """
    set_transport = receiver.setTransport

    def set_bounded(transport: RTCDtlsTransport) -> None:
        _SsrcLimit(transport)
        set_transport(transport)

    setattr(receiver, "setTransport", set_bounded)  # noqa: B010
    _SsrcLimit(receiver.transport)


class _SsrcLimit:
    """Of one transport."""

    def __init__(self, dtls: RTCDtlsTransport) -> None:
        require_private_names(dtls, _RTP, _RTCP, _SRTP)
        self._dtls: Any = dtls
        self._known: set[bytes] = set()
        self._has_told = False
        self._take_rtp, self._take_rtcp = getattr(dtls, _RTP), getattr(dtls, _RTCP)
        setattr(dtls, _RTP, self._rtp)
        setattr(dtls, _RTCP, self._rtcp)

    async def _rtp(self, data: bytes, arrival_time_ms: int) -> None:
        """One packet, decrypted. Its source: RFC 3550 section 5.1."""
        if self._takes(data[8:12]):
            await self._take_rtp(data, arrival_time_ms=arrival_time_ms)

    async def _rtcp(self, data: bytes) -> None:
        """One report, decrypted. Its sender: RFC 3550 section 6.4."""
        if self._takes(data[4:8]):
            await self._take_rtcp(data)

    def _takes(self, source: bytes) -> bool:
        if source in self._known:
            return True
        if len(self._known) < MAX_SOURCES:
            self._known.add(source)
            return True
        if not self._has_told:
            self._has_told = True
            logger.warning("! a caller has more than %d sources: the rest is dropped", MAX_SOURCES)
        getattr(self._dtls, _SRTP).remove_stream(int.from_bytes(source, "big"))
        return False
