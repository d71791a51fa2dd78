"""The fast path around aiortc: packets stay equal, counters go on, and aiortc keeps the rest."""

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any, cast

import pytest
from aioice.ice import StunProtocol
from aiortc import RTCPeerConnection
from aiortc.rtp import HeaderExtensionsMap, RtcpRrPacket, RtpPacket
from hypothesis import given
from hypothesis import strategies as st
from pylibsrtp import Error as SrtpError

from media.webrtc.aiortc_internals.rtp import (
    RtpSendPath,
    payload_range,
    receive_rtp,
)
from media.webrtc.aiortc_internals.ssrc_limit import MAX_SOURCES
from media.webrtc.aiortc_internals.transport import lose_packets
from media.webrtc.ice.gatherer import gather_with
from media.webrtc.ice.restart import IceRestart
from media.webrtc.ice.settings import IceSettings
from media.webrtc.rtp.call_path import RtpPacketSender

pytestmark = pytest.mark.live

DEADLINE_S = 20

Packets = list[tuple[int, int, bytes]]


class Pair:
    """Two plain aiortc connections with our sender on one and our receive path on the other."""

    def __init__(self, play: Callable[[RtpPacketSender], Coroutine[Any, Any, None]]) -> None:
        self.one, self.other = RTCPeerConnection(), RTCPeerConnection()
        self.sender = self.one.addTransceiver("audio", direction="sendonly").sender
        RtpSendPath(self.sender, play)
        self.receiver = self.other.addTransceiver("audio", direction="recvonly").receiver
        self.heard: Packets = []
        self.came = asyncio.Event()
        receive_rtp(self.receiver, self._sink)
        self.slow: list[RtpPacket] = []
        "The packets that came through aiortc."
        self._watch(self.receiver)
        gather_with(self.receiver.transport.transport.iceGatherer, IceSettings())

    async def connect(self) -> None:
        await self.one.setLocalDescription(await self.one.createOffer())
        await self.other.setRemoteDescription(self.one.localDescription)
        await self.other.setLocalDescription(await self.other.createAnswer())
        await self.one.setRemoteDescription(self.other.localDescription)

    async def close(self) -> None:
        await self.one.close()
        await self.other.close()

    async def hears(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(self.heard) < count:
                self.came.clear()
                await self.came.wait()

    def _sink(self, *packet: Any) -> None:
        self.heard.append(packet)
        self.came.set()

    def _watch(self, receiver: Any) -> None:
        handle = receiver._handle_rtp_packet

        async def watched(packet: RtpPacket, arrival_time_ms: int) -> None:
            self.slow.append(packet)
            await handle(packet, arrival_time_ms)

        receiver._handle_rtp_packet = watched


async def numbered(send: RtpPacketSender, count: int = 40) -> None:
    for number in range(count):
        send(960 * number, b"%d" % number)
        await asyncio.sleep(0.002)
    await asyncio.Event().wait()


async def in_call(
    scene: Callable[[Pair], Coroutine[Any, Any, None]],
    play: Callable[[RtpPacketSender], Coroutine[Any, Any, None]] = numbered,
) -> None:
    pair = Pair(play)
    try:
        await pair.connect()
        await scene(pair)
    finally:
        async with asyncio.timeout(DEADLINE_S):
            await pair.close()


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def test_packets_arrive_whole_and_only_the_first_takes_the_slow_path() -> None:
    async def scene(pair: Pair) -> None:
        await pair.hears(40)
        numbers, timestamps, payloads = zip(*pair.heard, strict=True)
        assert list(payloads) == [b"%d" % number for number in range(40)]
        assert {(b - a) & 0xFFFF for a, b in pairwise(numbers)} == {1}
        assert {(b - a) & 0xFFFFFFFF for a, b in pairwise(timestamps)} == {960}
        (first,) = pair.slow
        assert (first.marker, first.payload_type, first.ssrc) == (1, 96, pair.sender._ssrc)
        assert first.extensions.mid == "0"

    run(in_call(scene))


def test_statistics_count_packets_of_the_fast_path() -> None:
    async def scene(pair: Pair) -> None:
        await pair.hears(40)
        received = (await pair.receiver.getStats()).values()
        by_type = {stats.type: stats for stats in received}
        assert by_type["inbound-rtp"].packetsReceived == 40
        assert by_type["inbound-rtp"].packetsLost == 0
        assert by_type["transport"].packetsReceived >= 40
        sent = {stats.type: stats for stats in (await pair.sender.getStats()).values()}
        assert (sent["outbound-rtp"].packetsSent, sent["outbound-rtp"].bytesSent) == (40, 70)
        assert sent["transport"].packetsSent >= 40

    run(in_call(scene))


def test_both_sides_send_reports() -> None:
    """RTCP goes through aiortc and covers the fast path: losses and round trips."""

    async def scene(pair: Pair) -> None:
        await pair.hears(10)
        lose_packets(pair.receiver, iter([False, True] * 1000).__next__)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                kinds = {stats.type: stats for stats in (await pair.sender.getStats()).values()}
                remote = kinds.get("remote-inbound-rtp")
                if remote and remote.packetsLost > 0 and remote.roundTripTime is not None:
                    break
                await asyncio.sleep(0.05)
        assert 0 <= remote.roundTripTime < DEADLINE_S
        told = {stats.type: stats for stats in (await pair.receiver.getStats()).values()}
        assert told["remote-outbound-rtp"].packetsSent > 10

    async def on_and_on(send: RtpPacketSender) -> None:
        await numbered(send, 100_000)

    run(in_call(scene, on_and_on))


def test_forged_and_repeated_packets_are_dropped() -> None:
    async def scene(pair: Pair) -> None:
        connection: Any = pair.receiver.transport.transport._connection
        pass_on, seen = connection.data_received, list[bytes]()

        def twice(data: bytes, component: int) -> None:
            forged = data[:-1] + bytes([data[-1] ^ 1])
            for one in (forged, data, data) if 128 <= data[0] < 192 else (data,):
                seen.append(one)
                pass_on(one, component)

        connection.data_received = twice
        await pair.hears(40)
        assert len(seen) > 60
        assert len({number for number, _, _ in pair.heard}) == len(pair.heard)

    run(in_call(scene))


@pytest.mark.parametrize(
    "stray", [b"", b"\x80" * 1501, b"\x80\xc8" * 800], ids=["empty", "long RTP", "long RTCP"]
)
def test_a_strangers_datagram_does_not_end_a_call(stray: bytes) -> None:
    """Without our check an exception would end aiortc's task, and with it the call."""

    async def scene(pair: Pair) -> None:
        await pair.hears(10)
        ice: Any = pair.receiver.transport.transport._connection
        ours = ice._nominated[1].protocol.local_candidate
        family = socket.AF_INET6 if ":" in ours.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.sendto(stray, (ours.host, ours.port))
        await pair.hears(60)
        assert pair.receiver.transport.state == "connected"

    async def on_and_on(send: RtpPacketSender) -> None:
        await numbered(send, 100_000)

    run(in_call(scene, on_and_on))


def test_a_call_can_end_after_jitter_too_large_for_a_report() -> None:
    async def scene(pair: Pair) -> None:
        await pair.hears(10)
        receiver: Any = pair.receiver
        (statistics,) = receiver._RTCRtpReceiver__remote_streams.values()
        statistics._jitter_q4 = 1 << 60
        with pytest.raises(struct.error):
            await receiver._RTCRtpReceiver__rtcp_task
        async with asyncio.timeout(DEADLINE_S):
            await pair.other.close()

    run(in_call(scene))


@pytest.mark.parametrize("payload_type", [96, 50], ids=["ours", "nobody's"])
def test_only_the_first_sources_are_kept(payload_type: int) -> None:
    """The limit holds in aiortc's tables, its reports, and libsrtp."""
    done = asyncio.Event()

    async def many(send: RtpPacketSender) -> None:
        stream: Any = send.__self__  # type: ignore[attr-defined]
        send(0, b"sound")
        usual = stream._source, stream._type
        for source in range(1, 100):
            stream._source, stream._type = source, 0x80 | payload_type
            send(0, b"sound")
            await asyncio.sleep(0.002)
        stream._source, stream._type = usual
        send(960, b"more")
        done.set()
        await asyncio.Event().wait()

    async def scene(pair: Pair) -> None:
        await done.wait()
        async with asyncio.timeout(DEADLINE_S):
            while not any(payload == b"more" for _, _, payload in pair.heard):
                pair.came.clear()
                await pair.came.wait()
        receiver, dtls = pair.receiver, cast("Any", pair.receiver.transport)
        for name in ("active_ssrc", "remote_streams"):
            assert len(getattr(receiver, f"_RTCRtpReceiver__{name}")) <= MAX_SOURCES
        assert len(dtls._rtp_router.ssrc_table) <= MAX_SOURCES + 1  # the offer named none
        dtls._rx_srtp.remove_stream(MAX_SOURCES - 1)
        with pytest.raises(SrtpError):
            dtls._rx_srtp.remove_stream(99)
        assert not cast("Any", receiver)._RTCRtpReceiver__rtcp_task.done()

    run(in_call(scene, many))


def test_reports_of_too_many_senders_are_dropped() -> None:
    async def scene(pair: Pair) -> None:
        await pair.hears(1)
        dtls: Any = pair.receiver.transport
        routed: list[int] = []

        def route(packet: RtcpRrPacket) -> set[None]:
            routed.append(packet.ssrc)
            return set()

        dtls._rtp_router.route_rtcp = route
        for sender in range(MAX_SOURCES + 10):
            report = bytes(RtcpRrPacket(ssrc=sender, reports=[]))
            data = pair.sender.transport._tx_srtp.protect_rtcp(report)
            await dtls.transport._connection._queue.put((data, 1))
        await pair.hears(40)
        assert len([one for one in routed if one < MAX_SOURCES + 10]) < MAX_SOURCES

    run(in_call(scene))


def test_another_stream_takes_the_slow_path_once_and_is_received() -> None:
    async def scene(pair: Pair) -> None:
        await pair.hears(10)
        incoming = pair.receiver._RTCRtpReceiver__jitter_buffer  # type: ignore[attr-defined]
        incoming._source = b"none"  # as after packets of another source
        await pair.hears(20)
        assert len(pair.slow) == 2
        assert incoming._source == pair.sender._ssrc.to_bytes(4, "big")

    run(in_call(scene))


def test_packets_continue_after_an_ice_restart() -> None:
    async def scene(pair: Pair) -> None:
        await pair.hears(10)
        one, other = (
            IceRestart(side.transport.transport, IceSettings())
            for side in (pair.sender, pair.receiver)
        )
        theirs: Any = other._new
        ours = await one.begin(theirs.local_username, theirs.local_password, [])
        answer = await other.begin(ours.ufrag, ours.password, ours.candidates)
        await one.add_candidates(answer.candidates)
        assert all(await asyncio.gather(one.run(), other.run()))
        await pair.hears(len(pair.heard) + 20)
        numbers = [number for number, _, _ in pair.heard[-20:]]
        assert {(b - a) & 0xFFFF for a, b in pairwise(numbers)} == {1}

    async def on_and_on(send: RtpPacketSender) -> None:
        await numbered(send, 100_000)

    run(in_call(scene, on_and_on))


def test_nothing_is_sent_after_the_end() -> None:
    kept: list[RtpPacketSender] = []

    async def keep(send: RtpPacketSender) -> None:
        kept.append(send)
        await numbered(send)

    async def scene(pair: Pair) -> None:
        await pair.hears(10)
        await pair.one.close()
        kept[0](0, b"late")

    run(in_call(scene, keep))


MAP = HeaderExtensionsMap()


@given(
    st.binary(max_size=40),
    st.lists(st.integers(0, 2**32 - 1), max_size=15),
    st.integers(0, 20),
    st.booleans(),
)
def test_payloads_lie_where_aiortc_finds_them(
    payload: bytes, csrc: list[int], padding: int, has_extension: bool
) -> None:
    packet = RtpPacket(payload_type=96, payload=payload)
    packet.csrc, packet.padding_size = csrc, padding
    data = packet.serialize()
    if has_extension:
        behind = 12 + 4 * len(csrc)
        extension = b"\xbe\xde\x00\x01\x10\x30\x00\x00"
        data = bytes([data[0] | 0x10]) + data[1:behind] + extension + data[behind:]
    begin, end = payload_range(data)
    assert data[begin:end] == payload == RtpPacket.parse(data, MAP).payload


@given(st.binary(min_size=12, max_size=60))
def test_contradictory_packets_have_no_payload(data: bytes) -> None:
    data = bytes([data[0] & 0x3F | 0x80]) + data[1:]
    begin, end = payload_range(data)
    try:
        expected: bytes | None = RtpPacket.parse(data, MAP).payload
    except ValueError:
        expected = None
    assert (data[begin:end] if begin <= end else None) == expected


def test_only_rtp_and_dtls_bypass_stun() -> None:
    """As in aioice, a datagram that is no STUN goes to the connection with its component."""

    async def main() -> None:
        peer = RTCPeerConnection()
        receiver = peer.addTransceiver("audio").receiver
        gatherer = receiver.transport.transport.iceGatherer
        gather_with(gatherer, IceSettings())
        await gatherer.gather()
        connection: Any = gatherer._connection
        got: list[bytes] = []
        connection.data_received = lambda data, component: got.append(data)
        protocol = connection._protocols[0]
        assert isinstance(protocol, StunProtocol)
        for data in (b"\x80rtp", b"\xbf", b"\x16dtls", b""):
            protocol.datagram_received(data, ("127.0.0.1", 9))
        assert got == [b"\x80rtp", b"\xbf", b"\x16dtls"]
        await peer.close()

    run(main())
