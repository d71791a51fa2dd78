import asyncio

import pytest
from aioice import ice
from aiortc import RTCIceGatherer

from media.ice import LOOPBACK, IceServer, IceSettings, fall_back_to_loopback


@pytest.mark.parametrize(
    ("addresses", "gathered"), [([], {LOOPBACK}), (["127.0.0.2"], {"127.0.0.2"})]
)
def test_loopback_is_gathered_only_without_a_network(
    addresses: list[str], gathered: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> set[str]:
        gatherer = RTCIceGatherer(iceServers=[])
        fall_back_to_loopback(gatherer)
        await gatherer.gather()
        found = {candidate.ip for candidate in gatherer.getLocalCandidates()}
        await gatherer._connection.close()
        return found

    monkeypatch.setattr(ice, "get_host_addresses", lambda use_ipv4, use_ipv6: addresses)
    assert asyncio.run(main()) == gathered


def test_nobody_is_asked_by_default() -> None:
    assert IceSettings().configuration().iceServers == []


def test_servers_reach_aiortc_and_their_secret_no_log() -> None:
    server = IceServer(("turn:turn.example:3478",), "user", "s3cret")
    settings = IceSettings((server,))
    assert "s3cret" not in repr(settings)
    (configured,) = settings.configuration().iceServers or []
    assert (configured.urls, configured.username, configured.credential) == (
        ["turn:turn.example:3478"],
        "user",
        "s3cret",
    )
