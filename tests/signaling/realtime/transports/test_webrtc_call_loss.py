"""Calls that never connect or lose their connection end in bounded time, are counted, and leave
nothing."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aiohttp import WSMsgType
from aioice import ice
from aiortc import RTCDataChannel
from aiortc.sdp import candidate_from_sdp
from psutil import Process

from media.webrtc.ice import consent
from media.webrtc.peer import PeerSettings
from signaling.realtime.door import RealtimeSettings
from tests.media.webrtc.ice.nat import Nat
from tests.raw_peer import RawPeer, candidates_of, without_candidates
from tests.signaling.realtime.servers import Server, Setup, against
from tests.signaling.realtime.webrtc_client import CALLS, SDP

pytestmark = pytest.mark.live

QUESTION = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}


def udp_sockets() -> int:
    return len(Process().net_connections("udp"))


def patient_for(**peer: float) -> Setup:
    return Setup(settings=RealtimeSettings(peer=PeerSettings(**peer)))  # type: ignore[arg-type]


class Stranger:
    """A client of plain aiortc that sends no speech."""

    def __init__(self) -> None:
        self.raw = RawPeer(np.zeros(0, np.int16))
        self.channel: RTCDataChannel = self.raw.channel("oai-events")
        self.call_id = ""

    async def offer(self, server: Server, change: Callable[[str], str] = lambda sdp: sdp) -> str:
        """Sends the offer and returns the answer."""
        offer = change(await self.raw.offer())
        async with server.client.post(CALLS, data=offer, headers=SDP) as response:
            assert response.status == 201, await response.text()
            self.call_id = response.headers["Location"].removeprefix(f"{CALLS}/")
            return await response.text()

    def send(self, **event: Any) -> None:
        self.channel.send(json.dumps(event))

    async def until(self, kind: str) -> None:
        while json.loads(await self.raw.texts.get())["type"] != kind:
            pass

    def connection(self) -> Any:
        return self.raw.pc.getSenders()[0].transport.transport.iceGatherer._connection


@asynccontextmanager
async def stranger(server: Server, code: str) -> AsyncIterator[Stranger]:
    """Yields a client whose call ends with this code, and checks that everything is freed."""
    before = udp_sockets()
    one = Stranger()
    yield one
    await server.all_left()
    assert server.door.calls.count == 0
    counts = server.world.metrics.counts
    assert counts["earshot_errors"] == counts[f"earshot_errors:{code}"] == 1
    await one.raw.close()
    assert udp_sockets() == before


def test_a_call_that_never_connects_ends_in_bounded_time() -> None:
    async def scene(server: Server) -> None:
        async with stranger(server, "connect_timeout") as one:
            await one.offer(server, without_candidates)
            assert server.sessions.count == 1

    against(scene, patient_for(connect_timeout_s=0.2))


def test_a_caller_with_another_certificate_is_refused_at_once() -> None:
    """The fingerprint in the offer is that of another certificate, so DTLS fails."""

    def forged(sdp: str) -> str:
        pattern = r"(a=fingerprint:sha-\d+ )([0-9A-F]{2})"
        return re.sub(pattern, lambda line: f"{line[1]}{int(line[2], 16) ^ 1:02X}", sdp)

    async def scene(server: Server) -> None:
        async with stranger(server, "connect_failed") as one:
            await one.raw.accept(await one.offer(server, forged))

    against(scene)


def test_a_call_whose_caller_vanishes_during_a_response_ends() -> None:
    """A sideband is closed with the call; the response does not go on."""

    async def scene(server: Server) -> None:
        async with stranger(server, "connection_lost") as one:
            await one.raw.accept(await one.offer(server))
            await one.until("session.created")
            path = f"/v1/realtime?call_id={one.call_id}"
            async with server.client.ws_connect(path) as aside:
                one.send(type="conversation.item.create", item=QUESTION)
                one.send(type="response.create")
                await one.until("output_audio_buffer.started")
                one.raw.cut()
                while (message := await aside.receive()).type is WSMsgType.TEXT:
                    pass
                assert message.type in (WSMsgType.CLOSE, WSMsgType.CLOSED)

    against(scene, patient_for(vanished_timeout_s=1))


def test_a_call_ends_when_consent_is_not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 7675: packets still come, but the peer no longer answers our checks."""
    monkeypatch.setattr(consent, "CHECK_INTERVAL_S", 0.1)
    monkeypatch.setattr(consent, "EXPIRY_S", 1.0)

    async def scene(server: Server) -> None:
        async with stranger(server, "connection_lost") as one:
            await one.raw.accept(await one.offer(server))
            await one.until("session.created")
            monkeypatch.setattr(one.connection(), "request_received", lambda *_: None)

    against(scene)


def test_a_call_goes_on_when_the_callers_address_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller nominates its pair again with each check, as Chromium does."""
    monkeypatch.setattr(ice, "CONSENT_INTERVAL", 0.2)

    async def scene(server: Server) -> None:
        one = Stranger()
        connection = one.connection()
        build = connection.build_request
        monkeypatch.setattr(connection, "build_request", lambda pair, nominate: build(pair, True))
        answer = await one.offer(server, without_candidates)
        ours = next(line for line in candidates_of(answer) if "." in line.split()[4])
        address, port = ours.split()[4:6]
        nat = Nat((address, int(port)))
        await nat.open()
        await one.raw.accept(without_candidates(answer))
        outside = candidate_from_sdp(f"1 1 udp 2122260223 {address} {nat.port} typ host")
        outside.sdpMid = "0"
        await one.raw.pc.addIceCandidate(outside)
        await one.until("session.created")
        await nat.move()
        one.send(type="conversation.item.create", item=QUESTION)
        one.send(type="response.create")
        await one.until("output_audio_buffer.stopped")
        await one.raw.hears(lambda pcm: bool(np.abs(pcm).max() > 1000))
        await nat.answered.wait()
        await one.raw.close()
        nat.close()
        await server.all_left()
        assert "earshot_errors" not in server.world.metrics.counts

    against(scene)
