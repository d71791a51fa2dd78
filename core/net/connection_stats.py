"""Quality of a connection, as one of its ends measures it. A field that is None is not known, or
not known yet."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class AudioFlowStats:
    """Audio in one direction, as its receiver measures it."""

    packets: int = 0
    "Packets that should have arrived since the beginning."
    lost: int = 0
    "Number of those that were lost. At our end, packets that came too late to be played count too."
    loss: float | None = None
    "Lost share of the latest packets, 0 to 1."
    jitter_ms: float | None = None
    "Unevenness of arrival: the interarrival jitter of RFC 3550."
    buffer_ms: float | None = None
    "Mean time in ms for which the jitter buffer held the latest packets."


@dataclass(frozen=True, slots=True)
class ConnectionStats:
    """Quality of one connection, in both directions."""

    transport: Literal["webrtc", "websocket"]
    round_trip_ms: float | None = None
    "Round-trip time in ms."
    codec: str | None = None
    protocol: str | None = None
    "Transport protocol of the audio: udp, tcp."
    local_candidate: str | None = None
    "Type of our end of the path that ICE chose: host, srflx, prflx, relay."
    remote_candidate: str | None = None
    "Type of the other end of that path."
    received: AudioFlowStats | None = None
    "Audio that we receive. None where audio has no packets of its own (WebSocket)."
    sent: AudioFlowStats | None = None
    "Audio that we send, as the other end reports it."
