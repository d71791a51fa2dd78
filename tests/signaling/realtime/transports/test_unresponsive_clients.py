"""Half-open connections, and clients that do not read."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import WSCloseCode

from media.webrtc.peer import PeerSettings
from signaling.realtime.door import RealtimeSettings
from signaling.realtime.event_connection import SlowClient
from signaling.realtime.transports.event_socket import EventSocket
from tests.signaling.realtime.fakes import SENT_BYTES, WATCH, TalkativeHome, gone
from tests.signaling.realtime.raw_websocket import CLOSE, PING, PONG, TEXT, upgraded
from tests.signaling.realtime.servers import Server, Setup, against
from tests.signaling.realtime.webrtc_client import talking

pytestmark = pytest.mark.live

HEARTBEAT_S = 0.5
"Half of it is the time for an answer."

LONG = {
    "type": "session.update",
    "session": {"type": "realtime", "instructions": "x" * SENT_BYTES},
}


def test_a_half_open_connection_ends_and_one_that_answers_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("signaling.realtime.transports.event_socket.HEARTBEAT_S", HEARTBEAT_S)

    async def scene(server: Server) -> None:
        async with upgraded(server) as client:
            for _ in range(4):
                client.send(PONG, await client.until(PING))
            assert server.sessions.count == 1
            await client.until(PING)  # unanswered, as by a machine that lost its power
            await server.all_left()
            with pytest.raises(asyncio.IncompleteReadError):
                await client.until(PING)

    with caplog.at_level("INFO", "signaling"):
        against(scene)
    assert "ended: the client left" in caplog.text


def test_a_half_open_sideband_is_disconnected_and_the_call_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("signaling.realtime.transports.event_socket.HEARTBEAT_S", HEARTBEAT_S)

    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            connection = server.door.calls.connection(caller.call_id)
            async with upgraded(server, f"?call_id={caller.call_id}") as client:
                client.send(PONG, await client.until(PING))
                assert len(connection.sidebands) == 1
                await gone(connection)
            caller.send(type="session.update", session={"type": "realtime"})
            await caller.expect("session.updated")

    against(scene)


@pytest.mark.parametrize("state", ["x" * SENT_BYTES, "x" * 30_000, "語" * 30_000])
def test_a_client_that_does_not_read_is_disconnected_and_takes_little_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    monkeypatch.setattr("signaling.realtime.transports.event_socket.SEND_TIMEOUT_S", 0.2)
    monkeypatch.setattr("signaling.realtime.transports.event_socket.LAST_CHANCE_S", 0)
    queued, home = watch_buffers(monkeypatch), TalkativeHome(state)

    async def scene(server: Server) -> None:
        async with upgraded(server) as client:
            client.send(TEXT, json.dumps(WATCH).encode())
            await server.all_left()
            with pytest.raises(asyncio.IncompleteReadError):
                await client.until(CLOSE)  # disconnected before it

    with caplog.at_level("INFO", "signaling"):
        against(scene, Setup(home=home))
    assert "ended: the client did not take its events" in caplog.text
    assert 0 < max(queued) < 64 * 1024 + 2.1 * SENT_BYTES  # asyncio's high water, two events
    assert home.told * len(state.encode()) < 32 * 1024 * 1024  # what the sockets of both ends hold


class Buffer:
    """A transport with this number of buffered bytes."""

    def __init__(self, size: int) -> None:
        self.size = size

    def get_write_buffer_size(self) -> int:
        return self.size


@pytest.mark.parametrize(
    ("text", "queued", "is_timed"),
    [
        ("x" * 32 * 1024, 0, False),
        ("x" * 32 * 1024, 1, True),
        ("x" * (32 * 1024 + 1), 0, True),
        ("語" * 8 * 1024, 0, False),
        ("語" * (8 * 1024 + 1), 0, True),
    ],
)
def test_only_short_events_to_an_empty_buffer_are_sent_without_a_timer(
    monkeypatch: pytest.MonkeyPatch, text: str, queued: int, is_timed: bool
) -> None:
    async def never(*_: object) -> None:
        await asyncio.sleep(10)

    async def tell() -> bool:
        socket = EventSocket()
        monkeypatch.setattr(socket, "_transport", Buffer(queued))
        with pytest.raises((SlowClient, TimeoutError)) as ended:
            async with asyncio.timeout(0.2):
                await socket.send_event(text)
        return isinstance(ended.value, SlowClient)

    monkeypatch.setattr(EventSocket, "send_str", never)
    monkeypatch.setattr("signaling.realtime.transports.event_socket.SEND_TIMEOUT_S", 0)
    assert asyncio.run(tell()) is is_timed


def test_a_reader_that_resumes_in_time_gets_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signaling.realtime.transports.event_socket.SEND_TIMEOUT_S", 0.2)

    async def scene(server: Server) -> None:
        async with upgraded(server) as client:
            client.send(TEXT, json.dumps(WATCH).encode())
            await server.all_left()
            why = await client.until(CLOSE)
            assert int.from_bytes(why[:2]) == WSCloseCode.POLICY_VIOLATION
            assert why[2:] == b"client too slow"

    against(scene, Setup(home=TalkativeHome()))


def watch_buffers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the bytes that the server buffers for its client, whenever it sends one more
    event."""
    queued = [0]
    send = EventSocket.send_str

    async def watched(self: EventSocket, *args: Any, **kwargs: Any) -> None:
        asyncio.get_running_loop().call_soon(note, self._req)
        await send(self, *args, **kwargs)

    def note(request: Any) -> None:
        if request is not None and request.transport is not None:
            queued.append(request.transport.get_write_buffer_size())

    monkeypatch.setattr(EventSocket, "send_str", watched)
    return queued


async def hear_nothing(_: object) -> None:
    """Replaces the receiver of SCTP chunks, so that none is acknowledged."""


def test_a_call_that_does_not_take_its_events_ends_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    peer = PeerSettings(max_buffered_bytes=100_000)

    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            connection = server.door.calls.connection(caller.call_id)
            monkeypatch.setattr(caller.peer._pc.sctp, "_receive_chunk", hear_nothing)
            while server.door.calls.count:
                await connection.receive(json.dumps(LONG))
                await asyncio.sleep(0.01)
        await server.all_left()

    with caplog.at_level("INFO", "signaling"):
        against(scene, Setup(settings=RealtimeSettings(peer=peer)))
    assert "ended: lagging" in caplog.text
