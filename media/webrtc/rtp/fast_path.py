"""Path of a call that goes around aiortc's queues and tasks, with private names of its release."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiortc import RTCPeerConnection

from media.webrtc.aiortc_internals.rtp import RtpSendPath, receive_rtp
from media.webrtc.aiortc_internals.transport import (
    connection_of,
    is_closing,
    peer_certificate,
    selected_pair,
)
from media.webrtc.dtls_failure import curve_of
from media.webrtc.ice.gatherer import gather_with
from media.webrtc.ice.restart import IceRestart
from media.webrtc.ice.settings import IceSettings
from media.webrtc.peer_settings import PeerSettings
from media.webrtc.rtp.call_path import PathCallbacks, SelectedPair


class FastPath:
    """One call's audio and ICE; see `media.webrtc.rtp.call_path.CallPath`."""

    def __init__(
        self, peer_connection: RTCPeerConnection, settings: PeerSettings, callbacks: PathCallbacks
    ) -> None:
        direction = "sendrecv" if settings.plays else "recvonly"
        self.audio = peer_connection.addTransceiver("audio", direction=direction)
        gather_with(self.audio.receiver.transport.transport.iceGatherer, settings.ice)
        receive_rtp(self.audio.receiver, callbacks.on_packet)
        RtpSendPath(self.audio.sender, callbacks.play)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Does nothing: aiortc's own tasks move audio."""
        yield

    def described(self, sdp: str) -> str:
        """Returns the description unchanged, because `gather_with` has found all candidates."""
        return sdp

    def is_ice_over(self) -> bool:
        """True if ICE has ended."""
        return is_closing(connection_of(self.audio.receiver.transport.transport))

    def selected_pair(self) -> SelectedPair | None:
        """Returns the path that ICE chose; None while there is none."""
        pair = selected_pair(connection_of(self.audio.receiver.transport.transport))
        if pair is None:
            return None
        local, remote = pair.local_candidate, pair.remote_candidate
        return SelectedPair(local.transport, local.type, remote.type)

    def peer_curve(self) -> str:
        """Returns the curve of the other side's certificate; empty if it has none."""
        return curve_of(peer_certificate(self.audio.receiver.transport))

    def restart_ice(self, settings: IceSettings) -> IceRestart:
        """Returns a new ICE restart."""
        return IceRestart(self.audio.receiver.transport.transport, settings)
