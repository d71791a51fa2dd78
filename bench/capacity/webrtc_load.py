"""WebRTC sessions that cost the client little: packets are encoded before, and nothing is
decoded."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from time import perf_counter

from aiohttp import ClientSession, FormData
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCPeerConnection,
    RTCSessionDescription,
)
from av import Packet
from av.stream import Stream
from msgspec.json import encode

from bench.capacity.one_run import SETTLE_S, CapacityRun, window
from bench.client.http import Address, connect_errors, http_session, refusal
from bench.client.realtime import CONNECT_TIMEOUT_S, CannotConnect, Json
from bench.client.webrtc import CREATED
from bench.server.own_server import OwnServer
from core.audio import PTIME_MS, ms_to_samples
from media.codecs.opus import OPUS_RATE_HZ
from media.webrtc.aiortc_internals.rtp import receive_rtp

SESSION: Json = {
    "type": "realtime",
    "audio": {
        "input": {
            "turn_detection": {
                "type": "server_vad",
                "create_response": False,
                "interrupt_response": False,
            }
        }
    },
}
"Turns are detected and transcribed, but do not interrupt the one long answer."

CREATE_RESPONSE = encode({"type": "response.create"}).decode()
"Event that asks for an answer."

FRAME_SAMPLES = ms_to_samples(PTIME_MS, OPUS_RATE_HZ)
"Samples of a packet of 20 ms at 48 kHz."

PARALLEL_CONNECTS = 2
"""Limit of connections that are made at the same time: with more, a busy machine exceeds the
timeout."""


@dataclass(frozen=True, slots=True)
class PacketArrival:
    """Arrival of one packet."""

    timestamp: int
    "RTP timestamp at 48 kHz."
    at: float
    "Seconds of perf_counter: uvloop's own time has whole milliseconds."


class WebRtcLoadClient:
    """Client of one call; must be closed with `close`. It begins with the packet at `offset`, after
    `phase_s`."""

    def __init__(self, packets: Sequence[bytes], offset: int, phase_s: float) -> None:
        self.arrivals: list[PacketArrival] = []
        self.errors = 0
        self._pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._connected = asyncio.Event()
        self._packet_arrived = asyncio.Event()
        self._pc.on("connectionstatechange", self._on_state)
        self._channel = self._pc.createDataChannel("oai-events")
        self._channel.on("message", self._on_message)
        track = _PacketLoopTrack(packets, offset, phase_s)
        transceiver = self._pc.addTransceiver(track, direction="sendrecv")
        receive_rtp(transceiver.receiver, self._on_packet)

    async def connect(self, http: ClientSession, address: Address) -> None:
        """Connects and waits for the first packet. Raises CannotConnect."""
        await self._pc.setLocalDescription()
        form = FormData()
        form.add_field("sdp", self._pc.localDescription.sdp, content_type="application/sdp")
        form.add_field("session", encode(SESSION).decode(), content_type="application/json")
        with connect_errors(address):
            async with http.post(address.realtime("/calls"), data=form) as response:
                if response.status != CREATED:
                    raise await refusal(response)
                answer = await response.text()
        await self._pc.setRemoteDescription(RTCSessionDescription(answer, "answer"))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._connected.wait()
        except TimeoutError:
            raise CannotConnect(f"no media connection within {CONNECT_TIMEOUT_S} s") from None
        if self._pc.connectionState != "connected":
            raise CannotConnect(f"the connection is {self._pc.connectionState}")
        await self.wait_for_packet()

    async def wait_for_packet(self) -> None:
        """Waits for a packet. Raises CannotConnect."""
        self._packet_arrived.clear()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._packet_arrived.wait()
        except TimeoutError:
            raise CannotConnect(f"no packet for {CONNECT_TIMEOUT_S} s") from None

    async def close(self) -> None:
        await self._pc.close()

    def _on_state(self) -> None:
        if self._pc.connectionState in {"connected", "failed", "closed"}:
            self._connected.set()

    def _on_message(self, text: str | bytes) -> None:
        shown = text if isinstance(text, str) else text.decode()
        if '"session.created"' in shown or '"output_audio_buffer.stopped"' in shown:
            self._channel.send(CREATE_RESPONSE)
        self.errors += '"type":"error"' in shown

    def _on_packet(self, _: int, timestamp: int, payload: bytes) -> None:
        self.arrivals.append(PacketArrival(timestamp, perf_counter()))
        self._packet_arrived.set()


class _PacketLoopTrack(MediaStreamTrack):
    """Track that repeats the packets, one per 20 ms, without drift."""

    kind = "audio"

    def __init__(self, packets: Sequence[bytes], offset: int, phase_s: float) -> None:
        super().__init__()
        self._packets, self._offset, self._phase_s = packets, offset, phase_s
        self._clock = asyncio.get_running_loop().time
        self._origin: float | None = None
        self._tick = 0

    async def recv(self) -> "Packet[Stream]":
        if self._origin is None:
            self._origin = self._clock() + self._phase_s
        due = self._origin + self._tick * PTIME_MS / 1000
        await asyncio.sleep(max(0.0, due - self._clock()))
        packet = Packet(self._packets[(self._offset + self._tick) % len(self._packets)])
        packet.pts = self._tick * FRAME_SAMPLES
        packet.time_base = Fraction(1, OPUS_RATE_HZ)
        self._tick += 1
        return packet


async def run(
    server: OwnServer, packets: Sequence[bytes], seconds: float, sessions: int
) -> CapacityRun:
    """Runs this many calls for this time. Raises CannotConnect."""
    async with calling(server.address, sessions, packets) as callers:
        await asyncio.sleep(SETTLE_S)
        measured = await window(server.pid, seconds)
        until = measured.began + measured.wall_s
        kept = [
            [arrival for arrival in caller.arrivals if measured.began <= arrival.at <= until]
            for caller in callers
        ]
    return CapacityRun(
        sessions,
        measured,
        received_s=sum(len(arrivals) for arrivals in kept) * PTIME_MS / 1000,
        errors_ms=[error for arrivals in kept for error in interval_errors_ms(arrivals)],
        refusals=sum(caller.errors for caller in callers),
    )


@asynccontextmanager
async def calling(
    address: Address, sessions: int, packets: Sequence[bytes]
) -> AsyncGenerator[Sequence[WebRtcLoadClient]]:
    """Opens calls whose packets leave evenly spread over 20 ms. Raises CannotConnect."""
    phase_s = PTIME_MS / 1000 / sessions
    callers = [
        WebRtcLoadClient(packets, number * len(packets) // sessions, number * phase_s)
        for number in range(sessions)
    ]
    limit = asyncio.Semaphore(PARALLEL_CONNECTS)

    async def connect(http: ClientSession, caller: WebRtcLoadClient) -> None:
        async with limit:
            await caller.connect(http, address)

    async with AsyncExitStack() as stack:
        for caller in callers:
            stack.push_async_callback(caller.close)
        http = await stack.enter_async_context(http_session(address))
        try:
            async with asyncio.TaskGroup() as tasks:
                for caller in callers:
                    tasks.create_task(connect(http, caller))
        except* CannotConnect as group:
            raise CannotConnect(str(group.exceptions[0])) from group
        yield callers


def interval_errors_ms(arrivals: Sequence[PacketArrival]) -> list[float]:
    """Returns the difference between the interval of arrival and the interval of the timestamps,
    for each packet, in ms."""
    errors = []
    for before, after in pairwise(arrivals):
        samples = ((after.timestamp - before.timestamp + 0x80000000) & 0xFFFFFFFF) - 0x80000000
        errors.append(abs(1000 * (after.at - before.at - samples / OPUS_RATE_HZ)))
    return errors
