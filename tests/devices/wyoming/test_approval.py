"""Who comes from another machine is served once somebody approved it."""

import asyncio
from ipaddress import ip_address, ip_network

import pytest
from wyoming.info import Describe

from devices.directory import Standing
from devices.wyoming import door
from tests.devices.wyoming.servers import Scene, Standings, client, limited, send, until


@pytest.fixture
def _from_the_lan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections seem to come from there; a test has no second machine."""
    monkeypatch.setattr(door, "address_of", lambda _: ip_address("192.168.1.7"))


def scene(standing: Standing) -> Scene:
    lan = ip_network("192.168.0.0/16")
    return limited(Scene(directory=Standings(standing)), networks=(lan,))


@pytest.mark.usefixtures("_from_the_lan")
@pytest.mark.parametrize(
    ("standing", "code", "words"),
    [
        ("new", "not_approved", "earshot devices approve 192.168.1.7"),
        ("blocked", "blocked", "192.168.1.7 was blocked"),
    ],
)
def test_who_is_not_approved_is_told_how_to_be(standing: Standing, code: str, words: str) -> None:
    async def main() -> None:
        here = scene(standing)
        async with here.serving() as port, client(port) as one:
            await send(one, Describe())
            (told,) = await until(one, "info")
            assert (told.type, told.data["code"]) == ("error", code)
            assert words in told.data["text"]
        assert [error.code for error in here.ended] == [code]
        assert here.directory.came == ["192.168.1.7"]

    asyncio.run(main())


@pytest.mark.usefixtures("_from_the_lan")
def test_an_approved_one_is_served() -> None:
    async def main() -> None:
        async with scene("approved").serving() as port, client(port) as one:
            await send(one, Describe())
            assert (await until(one, "info"))[-1].type == "info"

    asyncio.run(main())


def test_this_machine_is_not_asked_for() -> None:
    async def main() -> None:
        here = Scene(directory=Standings("blocked"))
        async with here.serving() as port, client(port) as one:
            await send(one, Describe())
            assert (await until(one, "info"))[-1].type == "info"
        assert here.directory.came == []

    asyncio.run(main())
