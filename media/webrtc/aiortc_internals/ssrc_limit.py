"""Limits the number of RTP sources (SSRC) of a caller, because aiortc and libsrtp keep all of them.

A caller that has the call's keys can name another source in every packet. Packets of too many
sources are dropped after decryption, which removes a stranger's forgeries, and libsrtp then forgets
the source.
"""

import logging

from aiortc import RTCDtlsTransport, RTCRtpReceiver

logger = logging.getLogger(__name__)

MAX_SOURCES = 31
"""Most sources of a transport. A report has room for this many (RFC 3550 section 6.4.2). A browser
has one, and one more for each change to another microphone by a new track."""

_RTP, _RTCP, _SRTP = "_handle_rtp_data", "_handle_rtcp_data", "_rx_srtp"


def limit_ssrcs(receiver: RTCRtpReceiver) -> None:
    """Sets the limit on the receiver's transport, and on each transport that it gets later."""
    set_transport = receiver.setTransport

    def set_bounded(transport: RTCDtlsTransport) -> None:
        _SsrcLimit(transport)
        set_transport(transport)

    setattr(receiver, "setTransport", set_bounded)  # noqa: B010
    _SsrcLimit(receiver.transport)


class _SsrcLimit:
    """Limit of one transport."""

    def __init__(self, dtls: RTCDtlsTransport) -> None:
        self._dtls: object = dtls
        self._sources: set[bytes] = set()
        self._has_warned = False
        self._pass_rtp, self._pass_rtcp = getattr(dtls, _RTP), getattr(dtls, _RTCP)
        setattr(dtls, _RTP, self._rtp)
        setattr(dtls, _RTCP, self._rtcp)

    async def _rtp(self, data: bytes, arrival_time_ms: int) -> None:
        """Takes a decrypted packet. Its source: RFC 3550 section 5.1."""
        if self._is_accepted(data[8:12]):
            await self._pass_rtp(data, arrival_time_ms=arrival_time_ms)

    async def _rtcp(self, data: bytes) -> None:
        """Takes a decrypted report. Its sender: RFC 3550 section 6.4."""
        if self._is_accepted(data[4:8]):
            await self._pass_rtcp(data)

    def _is_accepted(self, source: bytes) -> bool:
        """True if packets of this source are accepted. Forgets a refused source in libsrtp."""
        if source in self._sources:
            return True
        if len(self._sources) < MAX_SOURCES:
            self._sources.add(source)
            return True
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "! a caller sends more than %d RTP sources; the others are dropped", MAX_SOURCES
            )
        getattr(self._dtls, _SRTP).remove_stream(int.from_bytes(source, "big"))
        return False
