"""Our gathering of candidates, which replaces aioice's, with real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from aioice import ice
from aiortc import RTCIceCandidate, RTCIceGatherer
from psutil import Process

from core.errors import OverloadedError
from media.webrtc.ice import gatherer
from media.webrtc.ice.gatherer import LOOPBACK, gather_with
from media.webrtc.ice.settings import IceServer, IceSettings
from tests.ports import free_ports

pytestmark = pytest.mark.live

T = TypeVar("T")


def run(scene: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(10):
            return await scene()

    return asyncio.run(bounded())


def on(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Makes the machine seem to have these addresses."""
    monkeypatch.setattr(ice, "get_host_addresses", lambda use_ipv4, use_ipv6: list(addresses))


def gathered(settings: IceSettings) -> list[RTCIceCandidate]:
    async def scene() -> list[RTCIceCandidate]:
        gatherer = RTCIceGatherer(iceServers=[])
        gather_with(gatherer, settings)
        try:
            await gatherer.gather()
            return gatherer.getLocalCandidates()
        finally:
            await gatherer._connection.close()

    return run(scene)


def test_the_replaced_method_has_the_expected_parameters() -> None:
    """In a new release of aioice read `get_component_candidates` before you raise CALL_RELEASES."""
    assert ice.Connection.get_component_candidates.__code__.co_varnames[:4] == (
        "self",
        "component",
        "addresses",
        "timeout",
    )


@pytest.mark.parametrize(
    ("addresses", "expected"), [([], {LOOPBACK}), (["127.0.0.2"], {"127.0.0.2"})]
)
def test_loopback_is_gathered_only_without_a_network(
    addresses: list[str], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, *addresses)
    assert {candidate.ip for candidate in gathered(IceSettings())} == expected


def test_candidates_equal_those_of_aioice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def plain() -> list[RTCIceCandidate]:
        gatherer = RTCIceGatherer(iceServers=[])
        await gatherer.gather()
        try:
            return gatherer.getLocalCandidates()
        finally:
            await gatherer._connection.close()

    on(monkeypatch, "127.0.0.2", "127.0.0.3")
    theirs, ours = run(plain), gathered(IceSettings())
    for candidate in (*theirs, *ours):
        candidate.port = 0
    assert ours == theirs


def test_ports_are_within_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "127.0.0.1", "127.0.0.2")
    ports = free_ports(4)
    for _ in range(8):
        found = gathered(IceSettings(ports=ports))
        assert len(found) == 2
        assert all(ports.first <= candidate.port <= ports.last for candidate in found)


def test_an_exhausted_port_range_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "127.0.0.1")
    ports = free_ports(2)

    async def scene() -> None:
        gatherers = [RTCIceGatherer(iceServers=[]) for _ in range(3)]
        for one in gatherers:
            gather_with(one, IceSettings(ports=ports))
        await gatherers[0].gather()
        await gatherers[1].gather()
        used = {one.getLocalCandidates()[0].port for one in gatherers[:2]}
        assert used == {ports.first, ports.last}
        with pytest.raises(OverloadedError) as refused:
            await gatherers[2].gather()
        assert refused.value.code == "no_ice_candidates"
        for one in gatherers:
            await one._connection.close()

    run(scene)
    assert gathered(IceSettings(ports=ports))  # the ports are free again


def test_a_public_address_is_offered_besides_the_local_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on(monkeypatch, "127.0.0.1", "::1")
    inner, inner6, outer = gathered(IceSettings(public_address="198.51.100.7"))
    assert (inner.type, inner.ip) == ("host", "127.0.0.1")
    assert (inner6.type, inner6.ip) == ("host", "::1")
    assert (outer.type, outer.ip, outer.port) == ("srflx", "198.51.100.7", inner.port)
    assert (outer.relatedAddress, outer.relatedPort) == ("127.0.0.1", inner.port)
    assert outer.priority < inner.priority


class _Silent(asyncio.DatagramProtocol):
    """A server that sends no answer."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.asked.set()


@pytest.mark.parametrize("scheme", ["stun", "turn"])
def test_a_silent_server_delays_gathering_only_by_the_timeout(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, "127.0.0.1")

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        transport, silent = await loop.create_datagram_endpoint(
            _Silent, local_addr=("127.0.0.1", 0)
        )
        port = transport.get_extra_info("sockname")[1]
        server = IceServer((f"{scheme}:127.0.0.1:{port}",), "user", "password")
        gatherer = RTCIceGatherer(iceServers=[])
        gather_with(gatherer, IceSettings((server,), gather_timeout_s=0.3))
        open_files, began_s = Process().num_fds(), loop.time()
        await gatherer.gather()
        assert 0.25 < loop.time() - began_s < 4  # aioice itself waits for 5 s
        assert silent.asked.is_set()
        assert [one.type for one in gatherer.getLocalCandidates()] == ["host"]
        await gatherer._connection.close()
        await asyncio.sleep(0)
        assert Process().num_fds() == open_files
        transport.close()

    run(scene)


def test_relay_only_without_a_relay_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "127.0.0.1")
    with pytest.raises(OverloadedError, match="no TURN server"):
        gathered(IceSettings(is_relay_only=True))


def test_closing_does_not_wait_for_a_silent_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatherer, "RELAY_CLOSE_TIMEOUT_S", 0.05)

    class Relay:
        is_asked = False

        async def close(self) -> None:
            self.is_asked = True
            await asyncio.Event().wait()

    async def scene() -> None:
        relay = Relay()
        gatherer._close_in_time(relay)  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            await relay.close()
        assert relay.is_asked

    run(scene)
