"""Sidebands that read nothing, and clients that vanish while the server waits to write to them."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from socket import SO_SNDBUF, SOL_SOCKET
from typing import Any

import pytest
from aiohttp import WSCloseCode

from signaling.realtime.connection import RealtimeConnection
from signaling.realtime.transports import event_socket, sideband
from signaling.realtime.transports.sideband_outbox import SidebandOutbox
from signaling.realtime.transports.sideband_queue import MAX_UNREAD_CHARS
from tests.signaling.realtime.fakes import WATCH, TalkativeHome, gone
from tests.signaling.realtime.raw_websocket import (
    BUFFER_BYTES,
    CLOSE,
    PONG,
    TEXT,
    RawClient,
    upgraded,
)
from tests.signaling.realtime.servers import Server, Setup, against
from tests.signaling.realtime.webrtc_client import Caller, form, talking

pytestmark = pytest.mark.live

NEVER_S = 1000
"Stands for a time limit that must not be the reason for the end."

LONG = json.dumps({"type": "session.updated", "session": {"instructions": "x" * 200_000}})

FILL = 16
"""The number of events of 200 kB that exceeds the buffers of both ends, but not the limit for
unread events."""
assert FILL * len(LONG) < MAX_UNREAD_CHARS


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffers of the kernel would take megabytes before the server had to wait."""
    prepare = event_socket.EventSocket.open

    async def shrunk(self: event_socket.EventSocket, request: Any) -> None:
        plug = request.transport.get_extra_info("socket")
        plug.setsockopt(SOL_SOCKET, SO_SNDBUF, BUFFER_BYTES)
        await prepare(self, request)

    monkeypatch.setattr(event_socket.EventSocket, "open", shrunk)


@dataclass
class Deaf:
    client: RawClient
    connection: RealtimeConnection
    pongs: asyncio.Task[None]
    "Sends pongs, so that the client counts as alive; ends when the server has disconnected it."


@contextlib.asynccontextmanager
async def deaf(server: Server, caller: Caller) -> AsyncIterator[Deaf]:
    """Opens a sideband that reads nothing, and sends it more than the buffers hold."""
    connection = server.door.calls.connection(caller.call_id)
    async with upgraded(server, f"?call_id={caller.call_id}") as client:
        client.stop_reading()
        pongs = asyncio.create_task(pong(client))
        await tell(connection, FILL)
        try:
            yield Deaf(client, connection, pongs)
        finally:
            pongs.cancel()


async def pong(client: RawClient) -> None:
    while not client.writer.transport.is_closing():
        client.send(PONG, b"")
        await asyncio.sleep(0.05)


async def tell(connection: RealtimeConnection, events: int) -> None:
    """Sends only to the sidebands: a data channel would take too long for so much."""
    for _ in range(events):
        for told in connection.sidebands:
            told.put(LONG)
        await asyncio.sleep(0)  # what can be written is


def limits(monkeypatch: pytest.MonkeyPatch, *, send_s: float, last_chance_s: float) -> None:
    monkeypatch.setattr(event_socket, "SEND_TIMEOUT_S", send_s)
    for module in (event_socket, sideband):
        monkeypatch.setattr(module, "LAST_CHANCE_S", last_chance_s)


async def still_answered(caller: Caller) -> None:
    while not caller.events.empty():
        caller.events.get_nowait()
    caller.send(type="response.cancel")
    await caller.expect("error")


def test_a_sideband_that_takes_no_event_in_time_is_disconnected_and_the_call_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits(monkeypatch, send_s=0.2, last_chance_s=0)

    async def scene(server: Server) -> None:
        async with talking(server) as caller, deaf(server, caller) as it:
            await gone(it.connection)
            await it.pongs
            await still_answered(caller)

    with caplog.at_level("INFO", "signaling"):
        against(scene)
    assert "sideband connection ended: the client did not take its events" in caplog.text


def test_a_sideband_with_too_many_unread_events_is_disconnected_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits(monkeypatch, send_s=NEVER_S, last_chance_s=0)

    async def scene(server: Server) -> None:
        async with talking(server) as caller, deaf(server, caller) as it:
            [told] = it.connection.sidebands
            assert [one.overflowed for one in it.connection.sidebands] == [False]
            while not told.overflowed:
                await tell(it.connection, 1)
            await gone(it.connection)
            await it.pongs

    with caplog.at_level("INFO", "signaling"):
        against(scene)
    assert "sideband connection ended: the client did not take its events" in caplog.text


def test_a_sideband_that_resumes_in_time_gets_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_socket, "SEND_TIMEOUT_S", 0.2)

    async def scene(server: Server) -> None:
        async with talking(server) as caller, deaf(server, caller) as it:
            [told] = it.connection.sidebands
            assert isinstance(told, SidebandOutbox)
            await told.closed.wait()
            it.client.resume_reading()
            why = await it.client.until(CLOSE)
            assert int.from_bytes(why[:2]) == WSCloseCode.POLICY_VIOLATION
            assert why[2:] == b"client too slow"

    against(scene)


def test_a_sideband_that_reads_nothing_is_disconnected_when_its_call_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits(monkeypatch, send_s=NEVER_S, last_chance_s=0.1)

    async def scene(server: Server) -> None:
        async with talking(server) as caller, deaf(server, caller) as it:
            caller.peer.stop()
            await gone(it.connection)
            await it.pongs

    against(scene)


def test_a_sideband_that_reads_gets_all_events_before_its_call_ends() -> None:
    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            connection = server.door.calls.connection(caller.call_id)
            async with upgraded(server, f"?call_id={caller.call_id}") as client:
                await tell(connection, FILL)
                caller.peer.stop()
                updated = 0
                while (frame := await client.frame())[0] == TEXT:
                    updated += json.loads(frame[1])["type"] == "session.updated"
                assert (updated, frame) == (FILL, (CLOSE, WSCloseCode.OK.to_bytes(2)))

    against(scene)


def test_a_sideband_of_a_call_that_never_connects_ends_with_it() -> None:
    async def scene(server: Server) -> None:
        caller = Caller()
        offer = form(await caller.peer.offer())
        answer = await server.client.post("/v1/realtime/calls", data=offer)
        path = answer.headers["Location"]
        async with upgraded(server, f"?call_id={path.split('/')[-1]}") as client:
            await server.client.post(f"{path}/hangup")
            await client.until(CLOSE)
        await caller.peer.close()

    against(scene)


def test_unread_events_of_a_sideband_are_limited_in_size_except_the_first() -> None:
    told = SidebandOutbox()
    told.put("x" * (MAX_UNREAD_CHARS + 1))
    assert not told.overflowed
    told.put("x")
    assert told.overflowed


async def blocked(seen: list[int]) -> None:
    """Waits until the server writes no more, because its client's buffers are full."""
    was = -1
    while was != len(seen) or not seen:
        was = len(seen)
        await asyncio.sleep(0.1)


def note_writing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list with one entry for each event that the server began to write."""
    begun: list[int] = []
    send = event_socket.EventSocket.send_str

    async def noted(self: event_socket.EventSocket, *args: Any, **kwargs: Any) -> None:
        begun.append(1)
        await send(self, *args, **kwargs)

    monkeypatch.setattr(event_socket.EventSocket, "send_str", noted)
    return begun


def test_a_client_that_resets_during_a_write_counts_as_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun = note_writing(monkeypatch)

    async def scene(server: Server) -> None:
        async with upgraded(server) as client:
            client.send(TEXT, json.dumps(WATCH).encode())
            client.stop_reading()
            await blocked(begun)
            client.writer.transport.abort()
            await server.all_left()
        await no_bug(server)

    with caplog.at_level("INFO"):
        against(scene, Setup(home=TalkativeHome()))
    assert "ended: the client left" in caplog.text
    assert "failed" not in caplog.text


def test_a_sideband_that_resets_during_a_write_counts_as_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun = note_writing(monkeypatch)

    async def scene(server: Server) -> None:
        async with talking(server) as caller, deaf(server, caller) as it:
            await blocked(begun)
            it.client.writer.transport.abort()
            await gone(it.connection)
            await still_answered(caller)
        await no_bug(server)

    with caplog.at_level("INFO"):
        against(scene)
    assert "sideband connection ended: the client left" in caplog.text
    assert "failed" not in caplog.text


async def no_bug(server: Server) -> None:
    """Checks that nothing counts as an internal error."""
    assert b'code="internal' not in server.edge_metrics.exposition()
    assert not any("internal" in str(one) for one in server.world.metrics.counts)
