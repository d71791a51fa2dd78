"""Path of a call over aiortc's documented interface: its jitter buffer and decoder, its sender.

It is for releases of aiortc and aioice that the fast path does not know. It cannot choose
ports, restart ICE, or use more than one STUN and one TURN address (docs/webrtc.md).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from aiortc import MediaStreamTrack, RTCPeerConnection
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame as AvFrame
from av import Packet
from av.stream import Stream

from core.audio import AudioFrame, Pcm, ms_to_samples
from core.errors import RequestError
from core.tasks import single_error
from media.codecs.opus import OPUS_RATE_HZ
from media.pcm import Framer
from media.resample import Resampler
from media.webrtc.ice.candidates import no_candidates, public_candidate_lines
from media.webrtc.ice.settings import IceSettings
from media.webrtc.peer_settings import PeerSettings
from media.webrtc.rtp.call_path import PathCallbacks, SelectedPair
from media.webrtc.rtp.tracks import MAX_FILL_MS

if TYPE_CHECKING:
    from media.webrtc.ice.restart import IceRestart

MAX_QUEUED_PACKETS = 50
"""Most packets that may wait until aiortc sends them: one second. aiortc takes each at once, unless
the event loop was blocked; older ones are dropped then."""

_TICK = Fraction(1, OPUS_RATE_HZ)
"Unit of the timestamps of packets, in seconds."


class OutgoingTrack(MediaStreamTrack):
    """Our audio, as packets that are encoded already, so that aiortc neither encodes nor paces."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self.wanted = asyncio.Event()
        "Set when aiortc asks for the first packet: the other side can be reached."
        self._packets: asyncio.Queue[Packet[Stream]] = asyncio.Queue(MAX_QUEUED_PACKETS)

    def send(self, timestamp: int, payload: bytes) -> None:
        """Gives aiortc one packet. `timestamp`: counts from 0 at 48 kHz."""
        packet: Packet[Stream] = Packet(payload)
        packet.pts, packet.time_base = timestamp, _TICK
        if self._packets.full():
            self._packets.get_nowait()
        self._packets.put_nowait(packet)

    async def recv(self) -> "Packet[Stream]":
        """Returns the next packet when it is due. Called by aiortc."""
        self.wanted.set()
        return await self._packets.get()


class DecodedAudio:
    """Converts what aiortc decoded to frames of 20 ms at `rate_hz`, without gaps in time.

    aiortc leaves out packets that did not come; they become silence here.
    """

    def __init__(self, rate_hz: int) -> None:
        self._resampler = Resampler(OPUS_RATE_HZ, rate_hz, live=True)
        self._framer = Framer(rate_hz)
        self._max_fill = ms_to_samples(MAX_FILL_MS, OPUS_RATE_HZ)
        self._expected: int | None = None
        "Timestamp of the next frame if no packet is lost; None before the first one."

    def push(self, decoded: AvFrame) -> list[AudioFrame]:
        """Takes one decoded packet: s16 at 48 kHz. Returns the frames that are complete."""
        assert decoded.pts is not None  # aiortc sets it
        missing = 0 if self._expected is None else decoded.pts - self._expected
        self._expected = decoded.pts + decoded.samples
        pcm = _mono(decoded)
        if missing > 0:
            lost = np.zeros(min(missing, self._max_fill), np.int16)
            pcm = np.concatenate([lost, pcm])
        return self._framer.push(self._resampler.push(pcm))


class PublicPath:
    """One call's audio and ICE; see `media.webrtc.rtp.call_path.CallPath`."""

    def __init__(
        self, peer_connection: RTCPeerConnection, settings: PeerSettings, callbacks: PathCallbacks
    ) -> None:
        direction = "sendrecv" if settings.plays else "recvonly"
        self._track = OutgoingTrack()
        self.audio = peer_connection.addTransceiver(self._track, direction=direction)
        self._decoded = DecodedAudio(settings.listen_rate_hz)
        self._ice, self._callbacks = settings.ice, callbacks

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Receives and sends audio while entered."""
        with single_error():
            async with asyncio.TaskGroup() as tasks:
                moving = [tasks.create_task(self._receive()), tasks.create_task(self._send())]
                try:
                    yield
                finally:
                    for task in moving:
                        task.cancel()

    def described(self, sdp: str) -> str:
        """Returns the description, with our public address if one is set. Raises OverloadedError
        when it has no candidate."""
        if "a=candidate:" not in sdp:
            raise no_candidates()
        public = self._ice.public_address
        return public_candidate_lines(sdp, public) if public else sdp

    def is_ice_over(self) -> bool:
        """True if aiortc has noticed that consent expired. It notices the end of DTLS first, so
        most often that is reported as closed by the other side."""
        return self.audio.receiver.transport.transport.state == "failed"

    def selected_pair(self) -> SelectedPair | None:
        """Returns None: aiortc does not say which path ICE chose."""
        return None

    def peer_curve(self) -> str:
        """Returns an empty text: aiortc does not show a certificate that was refused."""
        return ""

    def restart_ice(self, settings: IceSettings) -> "IceRestart":
        """Raises RequestError: aiortc cannot restart ICE."""
        raise RequestError(
            "This server cannot restart ICE: its fast path is off. Publish again instead.",
            code="ice_restart_unsupported",
        )

    async def _receive(self) -> None:
        """Reads the other side's audio until it ends."""
        if self.audio.currentDirection not in ("sendrecv", "recvonly"):  # it only listens
            return
        track = self.audio.receiver.track
        with suppress(MediaStreamError):
            while True:
                decoded = await track.recv()
                assert isinstance(decoded, AvFrame)
                self._callbacks.on_frames(self._decoded.push(decoded))

    async def _send(self) -> None:
        """Sends our audio as soon as aiortc can."""
        await self._track.wanted.wait()
        await self._callbacks.play(self._track.send)


def _mono(decoded: AvFrame) -> Pcm:
    """Returns the mean of the channels, which aiortc interleaves."""
    samples = decoded.to_ndarray().reshape(-1, decoded.layout.nb_channels)
    mean: Pcm = samples.mean(axis=1).astype(np.int16)
    return mean
