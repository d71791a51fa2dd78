"""Another program finds the announced server, and sees it leave: real mDNS on loopback."""

import asyncio
from ipaddress import ip_address

import pytest
import zeroconf.asyncio
from zeroconf import IPVersion, ServiceStateChange, Zeroconf

from server.net.mdns import SERVICE, mdns_service

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
