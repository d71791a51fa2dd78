"""Measures the quality of a peer's connection, from aiortc's statistics, RTCP reports and our own
jitter buffer."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from aiortc import RTCPeerConnection
from aiortc.stats import RTCInboundRtpStreamStats, RTCRemoteInboundRtpStreamStats

from core.audio import PTIME_MS
from core.net.connection_stats import AudioFlowStats, ConnectionStats
from media.codecs.opus import OPUS_RATE_HZ
from media.webrtc.rtp.call_path import SelectedPair
from media.webrtc.rtp.tracks import TrackSource

WINDOW = 5
"""Number of measurements over which loss and buffer are reported. Over only one, a single lost
packet would be 1 % or more."""


@dataclass(frozen=True, slots=True)
class PacketCounts:
    """Counts of packets since some moment."""

    expected: int = 0
    "Packets that were sent, by their sequence numbers."
    lost: int = 0
    "Packets that did not arrive in time."
    buffered: int = 0
    "Sum of the numbers of packets that the jitter buffer held after each arrival."

    @property
    def loss(self) -> float | None:
        """Share of lost packets, 0 to 1; None if none was expected."""
        return min(1.0, self.lost / self.expected) if self.expected > 0 else None


class PacketCountWindow:
    """Recent part of counts that only grow."""

    def __init__(self) -> None:
        self._counts: deque[PacketCounts] = deque([PacketCounts()], maxlen=WINDOW + 1)

    def push(self, now: PacketCounts) -> PacketCounts:
        """Adds the present counts. Returns what was added in the last WINDOW measurements, this one
        included."""
        self._counts.append(now)
        then = self._counts[0]
        lost = max(0, now.lost - then.lost)  # a packet may come after it was reported as lost
        return PacketCounts(now.expected - then.expected, lost, now.buffered - then.buffered)


class ConnectionStatsMeter:
    """Measures one connection. Each caller that measures regularly needs a meter of its own."""

    def __init__(
        self,
        peer_connection: RTCPeerConnection,
        selected_pair: Callable[[], SelectedPair | None],
        source: TrackSource | None,
    ) -> None:
        """Creates the meter. `source`: our jitter buffer; None if aiortc's is used."""
        self._peer_connection, self._selected_pair = peer_connection, selected_pair
        self._source = source
        self._received, self._sent = PacketCountWindow(), PacketCountWindow()

    async def measure(self) -> ConnectionStats:
        """Returns the present state. Loss and buffer cover the last WINDOW measurements, or the
        time since the beginning."""
        received, sent = AudioFlowStats(), AudioFlowStats()
        round_trip_s: float | None = None
        for stats in (await self._peer_connection.getStats()).values():
            if isinstance(stats, RTCInboundRtpStreamStats):
                received = self._received_stats(stats)
            elif isinstance(stats, RTCRemoteInboundRtpStreamStats):
                sent = self._sent_stats(stats)
                round_trip_s = stats.roundTripTime
        pair = self._selected_pair()
        return ConnectionStats(
            "webrtc",
            round_trip_ms=None if round_trip_s is None else max(0.0, 1000 * round_trip_s),
            codec="opus",  # the only codec that our peer accepts
            protocol=pair.protocol if pair else None,
            local_candidate=pair.local_candidate if pair else None,
            remote_candidate=pair.remote_candidate if pair else None,
            received=received,
            sent=sent,
        )

    def _received_stats(self, stats: RTCInboundRtpStreamStats) -> AudioFlowStats:
        """Returns the statistics of received audio. The counts are our jitter buffer's, if it is
        used: a late packet is lost to the application, even if aiortc counts it as received."""
        if self._source is None:
            expected, lost = stats.packetsReceived + stats.packetsLost, max(0, stats.packetsLost)
            recent = self._received.push(PacketCounts(expected, lost))
            return AudioFlowStats(expected, lost, recent.loss, _jitter_ms(stats.jitter))
        lost, flow = self._source.stats.lost, self._source.flow
        recent = self._received.push(PacketCounts(flow.released + lost, lost, flow.buffered))
        released = recent.expected - recent.lost
        held_ms = PTIME_MS * recent.buffered  # Little's law: one packet arrives per ptime
        return AudioFlowStats(
            packets=flow.released + lost,
            lost=lost,
            loss=recent.loss,
            jitter_ms=_jitter_ms(stats.jitter),
            buffer_ms=held_ms / released if released > 0 else None,
        )

    def _sent_stats(self, stats: RTCRemoteInboundRtpStreamStats) -> AudioFlowStats:
        """Returns the statistics of sent audio, from the other side's reports."""
        expected, lost = stats.packetsReceived + stats.packetsLost, max(0, stats.packetsLost)
        recent = self._sent.push(PacketCounts(expected, lost))
        return AudioFlowStats(expected, lost, recent.loss, _jitter_ms(stats.jitter))


def _jitter_ms(timestamps: int) -> float:
    return 1000 * timestamps / OPUS_RATE_HZ
