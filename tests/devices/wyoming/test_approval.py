"""A client on another machine is served once a user has approved it."""

import asyncio
from ipaddress import ip_address, ip_network

import pytest
from wyoming.asr import Transcribe
from wyoming.audio import AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.info import Describe

from devices.fleet.directory import ApprovalState
from devices.fleet.presence import DeviceActivity
from devices.wyoming import door
from tests.devices.wyoming.servers import (
    SPEECH,
    Scene,
    Standings,
    client,
    limited,
    send,
    sound,
    until,
)

pytestmark = pytest.mark.live


@pytest.fixture
def _from_the_lan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes connections look remote, because a test has no second machine."""
    monkeypatch.setattr(door, "peer_address", lambda _: ip_address("192.168.1.7"))


async def asked(one: AsyncTcpClient) -> None:
    await send(one, Describe())
    assert (await until(one, "info"))[-1].type == "info"


async def does(here: Scene, doing: DeviceActivity) -> None:
    """Waits until the condition holds, within the test's deadline."""
    while (live := here.presence.find("dev_1")) is None or live.activity != doing:
        await here.presence.changed().wait()


async def one_left(here: Scene) -> None:
    while True:
        if here.metrics.counts["earshot_wyoming_connections"] == 1:
            return
        await asyncio.sleep(0.005)


def scene(standing: ApprovalState) -> Scene:
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
def test_an_unapproved_client_is_told_how_to_be_approved(
    standing: ApprovalState, code: str, words: str
) -> None:
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


@pytest.mark.parametrize("trusts", [True, False])
def test_a_local_client_needs_approval_if_not_trusted(trusts: bool) -> None:
    async def main() -> None:
        here = limited(Scene(directory=Standings("new")), trusts_this_machine=trusts)
        async with here.serving() as port, client(port) as one:
            await send(one, Describe())
            told = (await until(one, "info"))[-1]
            assert told.type == ("info" if trusts else "error")
        assert here.directory.came == ([] if trusts else ["127.0.0.1"])

    asyncio.run(main())


@pytest.mark.usefixtures("_from_the_lan")
def test_an_approved_client_is_served() -> None:
    async def main() -> None:
        async with scene("approved").serving() as port, client(port) as one:
            await send(one, Describe())
            assert (await until(one, "info"))[-1].type == "info"

    asyncio.run(main())


@pytest.mark.usefixtures("_from_the_lan")
def test_a_device_is_present_while_any_connection_is_open() -> None:
    async def main() -> None:
        here = scene("approved")
        async with here.serving() as port, client(port) as one:
            await asked(one)
            async with client(port) as two:
                await asked(two)
                assert here.presence.ids() == ("dev_1",)
            await one_left(here)
            await asked(one)
            assert here.presence.ids() == ("dev_1",)
        assert here.presence.ids() == ()

    asyncio.run(main())


@pytest.mark.usefixtures("_from_the_lan")
def test_the_state_of_a_device_is_shown() -> None:
    async def main() -> None:
        here = scene("approved")
        async with here.serving() as port, client(port) as one:
            await asked(one)
            await does(here, "idle")
            await send(one, Transcribe(), *sound((SPEECH, 300))[:-1])
            await does(here, "listening")
            await send(one, AudioStop())
            await until(one, "transcript")
            await does(here, "idle")

    asyncio.run(main())


@pytest.mark.usefixtures("_from_the_lan")
def test_every_connection_of_a_device_ends_when_it_is_blocked() -> None:
    async def main() -> None:
        here = scene("approved")
        async with here.serving() as port, client(port) as one, client(port) as two:
            await asked(one)
            await asked(two)
            live = here.presence.find("dev_1")
            assert live is not None
            await live.close()
            assert (await until(one, "info"), await until(two, "info")) == ([], [])
        assert here.presence.ids() == ()

    asyncio.run(main())


def test_a_trusted_local_client_is_no_device() -> None:
    async def main() -> None:
        here = Scene(directory=Standings("blocked"))
        async with here.serving() as port, client(port) as one:
            await send(one, Describe())
            assert (await until(one, "info"))[-1].type == "info"
        assert here.directory.came == []

    asyncio.run(main())
