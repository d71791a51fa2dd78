"""Another program finds the announced server, and sees it leave: real mDNS on loopback."""

import asyncio
from collections.abc import Mapping, Sequence
from ipaddress import ip_address

import pytest
import zeroconf.asyncio
from zeroconf import IPVersion, ServiceStateChange, Zeroconf

from server.net.mdns import (
    HOME_ASSISTANT,
    SERVICE,
    FoundHomeAssistant,
    find_home_assistants,
    mdns_search,
    mdns_service,
)

pytestmark = pytest.mark.live

FIND_S = 20.0


def test_an_mdns_browser_finds_the_server_and_sees_it_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = zeroconf.asyncio.AsyncZeroconf

    def here() -> zeroconf.asyncio.AsyncZeroconf:
        return real(interfaces=["127.0.0.1"], ip_version=IPVersion.V4Only)

    monkeypatch.setattr(zeroconf.asyncio, "AsyncZeroconf", here)
    monkeypatch.setattr("socket.gethostname", lambda: "Test-Host.example")

    async def main() -> None:
        seen: asyncio.Queue[tuple[ServiceStateChange, str]] = asyncio.Queue()

        def note(
            zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
        ) -> None:
            if name.startswith("earshot-test-host."):
                seen.put_nowait((state_change, name))

        async with asyncio.timeout(FIND_S):
            looker = here()
            browser = zeroconf.asyncio.AsyncServiceBrowser(
                looker.zeroconf, SERVICE, handlers=[note]
            )
            async with mdns_service(10399, [ip_address("127.0.0.1")]):
                change, name = await seen.get()
                assert change is ServiceStateChange.Added
                info = zeroconf.asyncio.AsyncServiceInfo(SERVICE, name)
                assert await info.async_request(looker.zeroconf, 3000)
                assert (info.port, info.parsed_addresses()) == (10399, ["127.0.0.1"])
            while change is not ServiceStateChange.Removed:
                change, _ = await seen.get()
            await browser.async_cancel()
            await looker.async_close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("properties", "name", "url"),
    [
        (
            {"location_name": "Our\nhouse", "internal_url": "http://ha.example:8123/"},
            "Ourhouse",
            "http://ha.example:8123",
        ),
        ({"internal_url": "http://me:pw@evil.example"}, "Test", "http://127.0.0.1:8123"),
        ({"internal_url": "javascript:alert(1)"}, "Test", "http://127.0.0.1:8123"),
    ],
)
def test_home_assistant_is_found_by_what_it_announces(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], name: str, url: str
) -> None:
    real = zeroconf.asyncio.AsyncZeroconf

    def here() -> zeroconf.asyncio.AsyncZeroconf:
        return real(interfaces=["127.0.0.1"], ip_version=IPVersion.V4Only)

    monkeypatch.setattr(zeroconf.asyncio, "AsyncZeroconf", here)

    async def main() -> None:
        house = here()
        info = zeroconf.asyncio.AsyncServiceInfo(
            HOME_ASSISTANT,
            f"Test.{HOME_ASSISTANT}",
            addresses=[ip_address("127.0.0.1").packed],
            port=8123,
            properties=properties,
            server="test-house.local.",
        )
        await house.async_register_service(info)
        found = await find_home_assistants()
        await house.async_close()
        assert FoundHomeAssistant(name, url) in found

    asyncio.run(main())


def test_a_search_follows_what_is_announced_and_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    real = zeroconf.asyncio.AsyncZeroconf

    def here() -> zeroconf.asyncio.AsyncZeroconf:
        return real(interfaces=["127.0.0.1"], ip_version=IPVersion.V4Only)

    monkeypatch.setattr(zeroconf.asyncio, "AsyncZeroconf", here)
    service = "_earshot-test._tcp.local."

    class Listener:
        def __init__(self) -> None:
            self.seen: asyncio.Queue[object] = asyncio.Queue()

        def note(
            self, service: str, addresses: Sequence[str], port: int, texts: Mapping[str, str]
        ) -> None:
            self.seen.put_nowait((service, tuple(addresses), port, texts.get("mac")))

        def gone(self, service: str) -> None:
            self.seen.put_nowait(service)

    async def main() -> None:
        listener = Listener()
        async with asyncio.timeout(FIND_S), asyncio.TaskGroup() as tasks:
            search = tasks.create_task(mdns_search(service, listener))
            device = here()
            info = zeroconf.asyncio.AsyncServiceInfo(
                service,
                f"kitchen.{service}",
                addresses=[ip_address("127.0.0.1").packed],
                port=6053,
                properties={"mac": "aabbccddeeff"},
                server="kitchen.local.",
            )
            await device.async_register_service(info)
            name = f"kitchen.{service}"
            assert await listener.seen.get() == (name, ("127.0.0.1",), 6053, "aabbccddeeff")
            await device.async_unregister_service(info)
            while await listener.seen.get() != name:
                pass
            search.cancel()
            await device.async_close()

    asyncio.run(main())
