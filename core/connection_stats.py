"""How good a connection is, as one of its ends measures it. None: not known, or not yet."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class AudioFlowStats:
    """Sound in one direction, as its receiver sees it."""

    packets: int = 0
    "That should have come by now, since the beginning."
    lost: int = 0
    "Of those; at our end also what came too late to be heard."
    loss: float | None = None
    "The lost share of the latest packets, 0 to 1."
    jitter_ms: float | None = None
    "How unevenly packets arrive: RFC 3550's interarrival jitter."
    buffer_ms: float | None = None
    "For how long the jitter buffer held the latest packets, in the mean."


@dataclass(frozen=True, slots=True)
class ConnectionStats:
    transport: Literal["webrtc", "websocket"]
    round_trip_ms: float | None = None
    codec: str | None = None
    protocol: str | None = None
    "What carries the sound: udp, tcp."
    local_candidate: str | None = None
    "Type of our end of the path that ICE chose: host, srflx, prflx, relay."
    remote_candidate: str | None = None
    received: AudioFlowStats | None = None
    "None where sound has no packets of its own (WebSocket)."
    sent: AudioFlowStats | None = None
    "As the other end reports it."
