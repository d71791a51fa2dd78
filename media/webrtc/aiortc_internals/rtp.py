"""RTP path between the socket and our code that goes around aiortc's tasks and objects.

aiortc still connects, agrees on keys, sends reports (RTCP) and closes. Packets arrive and leave 50
times a second in each call, so they take a shorter way here (docs/adr/0029): no task is woken for a
packet, and no object is made of it but its payload. Private names of aiortc 1.16 and aioice 0.13
are used; `core.packages.private_names` lists and checks them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any

from aiortc import RTCRtpReceiver, RTCRtpSender
from aiortc.clock import current_ntp_time
from aiortc.rtcrtpparameters import RTCRtpCodecParameters
from aiortc.rtp import HeaderExtensions, RtpPacket
from aiortc.utils import random16, random32
from pylibsrtp import Error as SrtpError

from media.webrtc.aiortc_internals.ssrc_limit import limit_ssrcs
from media.webrtc.aiortc_internals.transport import COMPONENT, connection_of, selected_pairs
from media.webrtc.rtp.call_path import RtpPacketSender, RtpPacketSink

JITTER_BUFFER = "_RTCRtpReceiver__jitter_buffer"
"""Attribute of aiortc 1.16 with its own jitter buffer, which holds audio for 80 ms, and for 280 ms
after one loss."""
_STREAMS = "_RTCRtpReceiver__remote_streams"
_REPORTS_EXITED = "_RTCRtpReceiver__rtcp_exited"
_REPORT = "_run_rtcp"
_RUN = "_run_rtp"
_STARTED, _EXITED = "_RTCRtpSender__rtp_started", "_RTCRtpSender__rtp_exited"
_MID, _EXTENSIONS = "_RTCRtpSender__mid", "_RTCRtpSender__rtp_header_extensions_map"
_NTP_TIME, _RTP_TIME = "_RTCRtpSender__ntp_timestamp", "_RTCRtpSender__rtp_timestamp"
_OCTETS, _PACKETS = "_RTCRtpSender__octet_count", "_RTCRtpSender__packet_count"
_RX_BYTES, _RX_PACKETS = "_RTCDtlsTransport__rx_bytes", "_RTCDtlsTransport__rx_packets"
_TX_BYTES, _TX_PACKETS = "_RTCDtlsTransport__tx_bytes", "_RTCDtlsTransport__tx_packets"

_HEADER = Struct("!BBHLL")
"""RTP header, RFC 3550 section 5.1: version and flags, payload type, sequence number, timestamp,
SSRC."""
_SEQUENCE_AND_TIMESTAMP = Struct("!2xHL")
"The sequence number and the timestamp in that header."
_REPORT_INTERVAL_PACKETS = 25
"""Packets after which the times for sender reports are updated: every 500 ms. Reports are sent
about once a second."""


@dataclass(slots=True)
class _LastArrival:
    """The fields of a packet that aiortc's statistics read; they do not keep the object."""

    sequence_number: int = 0
    timestamp: int = 0


def receive_rtp(receiver: RTCRtpReceiver, sink: RtpPacketSink) -> None:
    """Passes each RTP packet to `sink` as it arrives; aiortc decodes nothing."""
    setattr(receiver, JITTER_BUFFER, RtpReceivePath(receiver, sink))
    limit_ssrcs(receiver)
    _let_reports_end(receiver)


def _let_reports_end(receiver: RTCRtpReceiver) -> None:
    """Marks the report task as ended even after an exception, because aiortc waits for that without
    a limit. A hostile caller can cause one: a jitter that does not fit into a report."""
    report, exited = getattr(receiver, _REPORT), getattr(receiver, _REPORTS_EXITED)

    async def reporting() -> None:
        try:
            await report()
        finally:
            exited.set()

    setattr(receiver, _REPORT, reporting)


class RtpReceivePath:
    """Receives packets in the place of aiortc's jitter buffer. It keeps nothing.

    The first packet of a stream comes through aiortc, which then knows the stream. The packets that
    follow are taken before they enter aiortc's queue. All other data goes into the queue.
    """

    def __init__(self, receiver: RTCRtpReceiver, sink: RtpPacketSink) -> None:
        self._receiver, self._sink = receiver, sink
        self._source: bytes | None = None
        "SSRC of the stream that takes the short path, as bytes; None before the first packet."
        self._payload_type = 0
        self._queue: asyncio.Queue[Any] | None = None
        self._arrival = _LastArrival()

    def add(self, packet: RtpPacket) -> tuple[bool, None]:
        """Takes a packet from aiortc, which believes that this is its jitter buffer."""
        self._learn_stream(packet)
        self._sink(packet.sequence_number, packet.timestamp, packet.payload)
        return False, None

    def _learn_stream(self, packet: RtpPacket) -> None:
        """Learns the stream of a packet from aiortc, and puts `_on_datagram` before the queue of
        its transport."""
        dtls = self._receiver.transport
        # the attributes of aiortc's object as a dictionary: the names of some of them are mangled
        self._counts: dict[str, Any] = vars(dtls)
        self._unprotect = self._counts["_rx_srtp"].unprotect
        self._statistics = getattr(self._receiver, _STREAMS)[packet.ssrc]
        self._source = packet.ssrc.to_bytes(4, "big")
        self._payload_type = packet.payload_type
        queue = connection_of(dtls.transport)._queue
        if queue is not self._queue:  # not installed on this queue yet
            self._queue = queue
            self._enqueue = queue.put_nowait
            setattr(queue, "put_nowait", self._on_datagram)  # noqa: B010  a method, to mypy

    def _on_datagram(self, item: tuple[bytes, int] | None) -> None:
        """Takes a datagram before aiortc's queue."""
        if item is None or not self._is_ours(data := item[0]):
            self._enqueue(item)
            return
        counts = self._counts  # aiortc's, for its statistics
        counts[_RX_BYTES] += len(data)
        counts[_RX_PACKETS] += 1
        try:
            data = self._unprotect(data)
        except SrtpError:  # not from the peer that has the keys, or a replayed packet
            return
        begin, end = payload_range(data)
        if begin > end:
            return
        arrived = self._arrival
        sequence_number, timestamp = _SEQUENCE_AND_TIMESTAMP.unpack_from(data)
        arrived.sequence_number, arrived.timestamp = sequence_number, timestamp
        self._statistics.add(arrived)
        self._sink(sequence_number, timestamp, data[begin:end])

    def _is_ours(self, data: bytes) -> bool:
        """True for an RTP packet of the known stream, while the receiver is enabled."""
        return (
            data[8:12] == self._source
            and data[1] & 0x7F == self._payload_type
            and data[0] & 0xC0 == 0x80
            and self._receiver._enabled
        )


def payload_range(data: bytes) -> tuple[int, int]:
    """Returns the start and the end of the payload. The start is after the end if the lengths in
    the header contradict each other. `data`: a decrypted RTP packet."""
    first = data[0]
    if not first & 0x3F:
        return _HEADER.size, len(data)
    begin, end = _HEADER.size + 4 * (first & 0x0F), len(data)
    if first & 0x10:  # an extension: two bytes of profile, its length in words, the words
        if begin + 4 > end:
            return 1, 0
        begin += 4 + 4 * int.from_bytes(data[begin + 2 : begin + 4], "big")
    if first & 0x20:
        end -= data[-1] or end  # the padding's length counts itself, so an honest one is never 0
    return begin, end


class RtpSendPath:
    """Sends one sender's packets, in the place of aiortc's loop around a track."""

    def __init__(
        self, sender: RTCRtpSender, play: Callable[[RtpPacketSender], Awaitable[None]]
    ) -> None:
        """Installs the path. `play`: runs from the time when the other side can be reached, until
        it is cancelled."""
        self._sender, self._play = sender, play
        setattr(sender, _RUN, self._run)

    async def _run(self, codec: RTCRtpCodecParameters) -> None:
        """Runs `play`. aiortc starts this, and cancels it in the end. It must not raise: the
        exception would be lost."""
        attributes = vars(self._sender)
        attributes[_STARTED].set()
        assert codec.payloadType is not None  # it was negotiated
        try:
            await self._play(_RtpPacketizer(self._sender, codec.payloadType).send)
        except asyncio.CancelledError:
            pass
        finally:
            attributes[_EXITED].set()


class _RtpPacketizer:
    """Builds, encrypts and sends the packets of one sender, with their sequence numbers."""

    def __init__(self, sender: RTCRtpSender, payload_type: int) -> None:
        dtls = sender.transport
        self._nominated = selected_pairs(connection_of(dtls.transport))
        self._dtls_attributes, self._sender_attributes = vars(dtls), vars(sender)
        self._protect = self._dtls_attributes["_tx_srtp"].protect
        self._pair: Any = None
        "Candidate pair over which the last packet was sent."
        self._type = 0x80 | payload_type  # with the marker bit: each packet is a complete frame
        self._source = sender._ssrc
        extensions = HeaderExtensions(mid=self._sender_attributes[_MID])
        profile, value = self._sender_attributes[_EXTENSIONS].set(extensions)
        words = (len(value) // 4).to_bytes(2, "big")
        self._extension = profile.to_bytes(2, "big") + words + value if value else b""
        self._flags = 0x90 if value else 0x80
        self._number = random16() % 32768  # RFC 3711 section 3.3.1: far from the first rollover
        self._origin = random32()

    def send(self, timestamp: int, payload: bytes) -> None:
        """Sends a payload at once. Does nothing while there is no connection to the other side."""
        pair = self._nominated.get(COMPONENT)
        if pair is None:
            return
        if pair is not self._pair:
            self._pair, self._address = pair, pair.remote_addr
        number, timestamp = self._number, (self._origin + timestamp) & 0xFFFFFFFF
        header = _HEADER.pack(self._flags, self._type, number, timestamp, self._source)
        data = self._protect(header + self._extension + payload)
        pair.protocol.transport.sendto(data, self._address)
        self._number = (number + 1) & 0xFFFF
        dtls, sender = self._dtls_attributes, self._sender_attributes  # for reports and statistics
        dtls[_TX_BYTES] += len(data)
        dtls[_TX_PACKETS] += 1
        if sender[_PACKETS] % _REPORT_INTERVAL_PACKETS == 0:
            sender[_NTP_TIME] = current_ntp_time()
            sender[_RTP_TIME] = timestamp
        sender[_OCTETS] += len(payload)
        sender[_PACKETS] += 1
