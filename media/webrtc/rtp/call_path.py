"""The two paths between a peer and aiortc, and the choice between them.

The fast path takes packets before aiortc's queues and tasks (docs/adr/0029). It uses private names
of aiortc and aioice. The public path uses aiortc's documented interface only, so it works with
other releases; it costs more and can do less (docs/adr/0058).
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from core.audio import AudioFrame
from core.errors import ConfigError
from core.packages.private_names import call_path_obstacles
from media.webrtc.ice.settings import IceSettings

if TYPE_CHECKING:
    from aiortc import RTCPeerConnection, RTCRtpTransceiver

    from media.webrtc.ice.restart import IceRestart
    from media.webrtc.peer_settings import PeerSettings

RtpPacketSink = Callable[[int, int, bytes], None]
"Takes a packet: sequence number, timestamp, payload."

RtpPacketSender = Callable[[int, bytes], None]
"Sends a payload with its timestamp, which counts from 0 at 48 kHz."

PUBLIC_PATH_COST = "each call takes about three times the processor time, and is heard 80 ms later"
"Measured with `python -m bench capacity webrtc`; the 80 ms are aiortc's jitter buffer."


@dataclass(frozen=True, slots=True)
class SelectedPair:
    """The path through the network that ICE chose."""

    protocol: str
    "Transport protocol: udp, tcp."
    local_candidate: str
    "Type of our end: host, srflx, prflx, relay."
    remote_candidate: str
    "Type of the other end."


@dataclass(frozen=True, slots=True)
class PathCallbacks:
    """Callbacks of a path. They are called in the event loop, and none of them raises."""

    on_packet: RtpPacketSink
    "Takes a packet that was received, as it was encoded. The fast path calls it."
    on_frames: Callable[[list[AudioFrame]], None]
    "Takes audio that aiortc decoded: frames of 20 ms at listen_rate_hz. The public path calls it."
    play: Callable[[RtpPacketSender], Awaitable[None]]
    "Runs while audio can be sent, until it is cancelled."


class CallPath(Protocol):
    """Connection of one peer's audio and ICE to aiortc. `FastPath` and `PublicPath` implement
    it."""

    @property
    def audio(self) -> "RTCRtpTransceiver":
        """The audio section of the call."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """While entered, audio moves between the peer and aiortc."""
        ...

    def described(self, sdp: str) -> str:
        """Returns our description with all candidates that the other side should know.

        Raises OverloadedError when there is none.
        """
        ...

    def is_ice_over(self) -> bool:
        """True if ICE has ended. If we did not end it, consent has expired (RFC 7675), which aiortc
        reports as if the other side had closed the call."""
        ...

    def selected_pair(self) -> SelectedPair | None:
        """Returns the path that ICE chose; None if it is not known."""
        ...

    def peer_curve(self) -> str:
        """Returns the elliptic curve of the other side's certificate; empty if it is not known."""
        ...

    def restart_ice(self, settings: IceSettings) -> "IceRestart":
        """Returns a new ICE restart. Raises RequestError where that is not possible."""
        ...


def has_fast_path(ice: IceSettings) -> bool:
    """True if calls with these settings take the fast path."""
    return ice.wants_fast_path and not call_path_obstacles()


def describe_path(ice: IceSettings) -> str:
    """Returns one sentence that says which path calls take, and if it is the public one, why and at
    what cost."""
    if has_fast_path(ice):
        return "calls take the fast path around aiortc's queues"
    why = "; ".join(call_path_obstacles()) if ice.wants_fast_path else "[ice] fast_path = false"
    ports = "; [ice] ports has no effect" if ice.ports else ""
    return f"calls use aiortc's public interface only ({why}): {PUBLIC_PATH_COST}{ports}"


def check_path(ice: IceSettings) -> None:
    """Raises ConfigError if the settings refuse the fast path, and ask for what only it can do."""
    if not ice.wants_fast_path and ice.ports is not None:
        raise ConfigError("config.ice.ports: needs ice.fast_path; aiortc takes any free port")


def open_path(
    peer_connection: "RTCPeerConnection", settings: "PeerSettings", callbacks: PathCallbacks
) -> CallPath:
    """Adds the audio section to a new connection, by the path that its settings and the installed
    libraries allow."""
    # Imported here: with another release of aioice the import itself may fail.
    if has_fast_path(settings.ice):
        from media.webrtc.rtp.fast_path import FastPath

        return FastPath(peer_connection, settings, callbacks)
    from media.webrtc.rtp.public_path import PublicPath

    return PublicPath(peer_connection, settings, callbacks)
