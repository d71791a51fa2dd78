"""A WebRTC client of plain aiortc without our code, as another client would be."""

import asyncio
import re
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceServer,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

from core.audio import Pcm

RATE_HZ = 48_000
FRAME = RATE_HZ // 50


class Clip(MediaStreamTrack):
    """A track that plays a clip of 48 kHz mono in real time, then silence."""

    kind = "audio"

    def __init__(self, pcm: Pcm) -> None:
        super().__init__()
        self._pcm = pcm
        self._next = 0
        self._began_s: float | None = None

    async def recv(self) -> AudioFrame:
        if self.readyState != "live":
            raise MediaStreamError
        loop = asyncio.get_running_loop()
        if self._began_s is None:
            self._began_s = loop.time()
        await asyncio.sleep(self._began_s + self._next / RATE_HZ - loop.time())
        piece = self._pcm[self._next : self._next + FRAME]
        frame = AudioFrame.from_ndarray(
            np.pad(piece, (0, FRAME - len(piece)))[None], format="s16", layout="mono"
        )
        frame.sample_rate, frame.pts = RATE_HZ, self._next
        frame.time_base = Fraction(1, RATE_HZ)
        self._next += FRAME
        return frame


class RawPeer:
    """One connection that sends an offer and uses none of our code."""

    def __init__(
        self, pcm: Pcm, direction: str = "sendrecv", servers: Iterable[RTCIceServer] = ()
    ) -> None:
        self.pc = RTCPeerConnection(RTCConfiguration(iceServers=list(servers)))
        self.pc.addTransceiver(Clip(pcm), direction=direction)
        self.texts: asyncio.Queue[str] = asyncio.Queue()
        self.connected = asyncio.Event()
        self.ended = asyncio.Event()
        self.pc.on("connectionstatechange", self._on_state)

    def channel(self, label: str) -> RTCDataChannel:
        """Opens a channel; its received messages are in `texts`."""
        channel = self.pc.createDataChannel(label)
        channel.on("message", self.texts.put_nowait)
        return channel

    async def offer(self) -> str:
        await self.pc.setLocalDescription(await self.pc.createOffer())
        return self.pc.localDescription.sdp

    async def accept(self, answer: str) -> None:
        await self.pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))

    async def hears(self, is_it: Callable[[Pcm], bool]) -> None:
        """Waits for a second of sound, mono at 48 kHz, for which `is_it` holds."""
        track, heard = self.pc.getReceivers()[0].track, np.zeros(0, np.int16)
        while len(heard) < RATE_HZ or not is_it(heard[-RATE_HZ:]):
            frame = await track.recv()
            assert isinstance(frame, AudioFrame)
            pcm = frame.to_ndarray().reshape(-1, len(frame.layout.channels))[:, 0]
            heard = np.concatenate([heard[-RATE_HZ:], pcm.astype(np.int16)])

    def cut(self) -> None:
        """Cuts the cable: the sockets neither send nor receive any more, and no goodbye is sent."""
        gatherer = self.pc.getSenders()[0].transport.transport.iceGatherer
        for protocol in gatherer._connection._protocols:
            for end, name in ((protocol, "datagram_received"), (protocol.transport, "sendto")):
                setattr(end, name, lambda *_: None)

    async def close(self) -> None:
        await self.pc.close()

    def _on_state(self) -> None:
        match self.pc.connectionState:
            case "connected":
                self.connected.set()
            case "failed" | "closed":
                self.ended.set()


def candidates_of(sdp: str) -> list[str]:
    """Returns the candidates in the form `candidate:...`."""
    return re.findall(r"^a=(candidate:.*?)\r?$", sdp, re.MULTILINE)


def without_candidates(sdp: str) -> str:
    return re.sub(r"^a=(candidate:.*|end-of-candidates)\r?\n", "", sdp, flags=re.MULTILINE)


def with_hidden_addresses(sdp: str) -> str:
    """Hides addresses of host candidates, as browsers do before the page has used a microphone."""
    name = "4f5b3c2a-9d1e-4c5f-8a7b-0123456789ab.local"
    pattern = r"^(a=candidate:\S+ \d+ \S+ \d+ )\S+( \d+ typ host)"
    return re.sub(pattern, rf"\g<1>{name}\g<2>", sdp, flags=re.MULTILINE)
