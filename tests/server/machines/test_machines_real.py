"""Two servers on two machines with one PostgreSQL: calls go to the less busy one, later requests
find their call, one wake word gets one answer; also with a partition, and without the database."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientTimeout, TCPConnector

from bench.client.webrtc import WebRtcClient
from core.conversation.ids import machine_of
from tests.conftest import require
from tests.devices.registry.postgres import Postgres, postgres
from tests.devices.willow.was.simulated_device import SimulatedWillow
from tests.raw_peer import RawPeer
from tests.server.gateways.two_gateways import until
from tests.server.machines.two_machines import API_KEY, Machines, machines, missing, serving_in
from tests.server.process import Running
from tests.signaling.whip.client import SDP, Publisher, beeps, publishing

pytestmark = pytest.mark.real

DEADLINE_S = 400
SOUND = beeps(600, 500_000)


@dataclass
class Scene:
    made: Machines
    database: Postgres
    servers: tuple[Running, Running]


@contextmanager
def two_servers(folder: Path) -> Iterator[Scene]:
    reason = missing()
    require(not reason, reason)
    with machines() as made, postgres(made.here) as database:
        url = database.create()
        with (
            serving_in(made, 0, folder / "a", url) as one,
            serving_in(made, 1, folder / "b", url) as two,
        ):
            yield Scene(made, database, (one, two))


@asynccontextmanager
async def client(server: Running) -> AsyncIterator[ClientSession]:
    async with ClientSession(
        server.url,
        headers={"Authorization": f"Bearer {API_KEY}"},
        connector=TCPConnector(force_close=True),
        timeout=ClientTimeout(60),
    ) as http:
        yield http


def place(location: str) -> int:
    """Returns the number of the machine that the path of a call names."""
    found = machine_of(location.rpartition("/")[2])
    assert found is not None
    return found


async def said(server: Running, text: str, times: int = 1) -> None:
    async def holds() -> bool:
        return sum(text in line for line in server.said) >= times

    await until(holds)


async def status(http: ClientSession, path: str) -> int:
    async with http.get(path) as answer:
        return answer.status


async def check_redirect(http: ClientSession, other: ClientSession, busy: int) -> None:
    """A WHIP client is redirected to the other machine, and its ticket is good once."""
    publisher = Publisher(http, RawPeer(SOUND, "sendonly"))
    offer = await publisher.raw.offer()
    async with http.post("/whip", data=offer, headers=SDP, allow_redirects=False) as answer:
        assert answer.status == 307
        target = answer.headers["Location"]
    assert target.startswith(str(other._base_url).rstrip("/"))
    async with ClientSession() as anyone:  # without the key, as clients follow redirects
        async with anyone.post(target, data=offer, headers=SDP) as answer:
            assert answer.status == 201, await answer.text()
            location = answer.headers["Location"]
        async with anyone.post(target, data=offer, headers=SDP) as answer:
            assert answer.status == 403
            assert (await answer.json())["error"]["code"] == "machine_not_authenticated"
    assert place(location) != busy
    assert await status(http, location) == 204  # asked at the wrong machine
    async with http.delete(location) as answer:
        assert answer.status == 200
    assert await status(other, location) == 404
    await publisher.raw.close()


async def check_call(http: ClientSession, busy: int) -> None:
    """An offer is passed on to the other machine; its media and its sideband work."""

    async def is_passed_on() -> bool:
        return await call_through(http) != busy

    await until(is_passed_on)  # what was given to the other one counts until the next heartbeat


async def call_through(http: ClientSession) -> int:
    """Makes a call, uses its sideband, and hangs up; returns the machine that had it."""
    caller = WebRtcClient(lambda *_: None)
    offer = await caller.peer.offer()
    headers = {"Content-Type": "application/sdp"}
    async with http.post("/v1/realtime/calls", data=offer, headers=headers) as answer:
        assert answer.status == 201, await answer.text()
        location = answer.headers["Location"]
    call = location.rpartition("/")[2]
    async with http.ws_connect(f"/v1/realtime?call_id={call}") as sideband:
        await sideband.send_json({"type": "earshot.unknown", "event_id": "mine"})
        async for message in sideband:
            if message.json()["type"] == "error":
                break
    async with http.post(f"/v1/realtime/calls/{call}/hangup") as answer:
        assert answer.status == 200
    await caller.peer.close()
    return place(location)


@asynccontextmanager
async def booted(made: Machines) -> AsyncIterator[list[SimulatedWillow]]:
    """Yields one device without a room at each machine."""
    devices = [
        SimulatedWillow(number, f"ws://{address}:8502/ws", address=made.here)
        for number, address in enumerate(made.addresses, 1)
    ]
    try:
        for one in devices:
            await one.boot()
            await one.configured()
        yield devices
    finally:
        for one in devices:
            await one.off()


async def wins(devices: list[SimulatedWillow]) -> list[bool]:
    """Lets all devices hear one wake word; returns their verdicts."""
    counts = [len(one.wake_results()) for one in devices]
    await asyncio.gather(*(one.wake(-20.0 - index) for index, one in enumerate(devices)))
    for one, count in zip(devices, counts, strict=True):
        await one.until(lambda one=one, count=count: len(one.wake_results()) > count)
    await asyncio.sleep(1.6)  # the room is free for the next wake word: devices.arbitration.LATE_S
    return [one.wake_results()[-1] for one in devices]


def test_two_machines_work_together(tmp_path: Path) -> None:
    async def scene(it: Scene) -> None:
        a, b = it.servers
        async with asyncio.timeout(DEADLINE_S), client(a) as http, client(b) as other:
            await said(a, "works with this one")
            await said(b, "works with this one")
            async with (
                booted(it.made) as devices,
                publishing(http, SOUND) as first,
                publishing(http, SOUND) as second,
            ):
                busy = place(first.location)
                assert place(second.location) == busy
                await check_redirect(http, other, busy)
                await check_call(http, busy)
                assert sorted(await wins(devices)) == [False, True]
                async with ClientSession() as anyone:
                    peers = f"https://{it.made.addresses[1]}:8090/v1/devices"
                    async with anyone.get(peers, ssl=False) as answer:
                        assert answer.status == 403

                it.made.partition()
                assert sorted(await wins(devices)) == [False, True]
                assert await status(http, first.location) == 204
                async with publishing(other, SOUND) as third:
                    assert place(third.location) != busy
                it.made.heal()

                it.database.stop()
                await said(a, "! devices: ")
                assert sorted(await wins(devices)) == [False, True]
                async with publishing(other, SOUND) as third:
                    assert await status(http, third.location) == 204
                assert await status(other, first.location) == 204
                assert sum("! devices: conn" in line for line in a.said) <= 1
                it.database.start()
                for server in it.servers:
                    await said(server, "the database works again")
                assert sorted(await wins(devices)) == [False, True]
        for server in it.servers:
            assert server.stop() == 0

    with two_servers(tmp_path) as it:
        asyncio.run(scene(it))
