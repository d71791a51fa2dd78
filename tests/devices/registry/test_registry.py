"""Coming, being approved, being named and being forgotten."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network

import pytest
from sqlalchemy import update

from core.errors import NotFound, RequestError
from devices.directory import Device, DeviceProfile
from devices.pairing import ApprovalRule, RegistrySettings
from devices.registry import queries
from devices.registry import registry as registry_file
from devices.registry.tables import devices
from tests.devices.registry.harness import Known, contact, known

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("postgres")]

MINUTE = timedelta(minutes=1)


def test_a_new_device_has_a_code_and_is_the_same_when_it_comes_again(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            first = await here.registry.check_in(contact(board="box-3", firmware="1.0"))
            assert (first.standing, first.name) == ("new", "box-3 ee01")
            assert first.id.startswith("dev_")
            assert len(first.pairing_code) == 6
            assert first.pairing_code.isdigit()
            assert first.last_seen == here.clock.at
            here.clock.go_on(2 * MINUTE)
            again = await here.registry.check_in(contact(address="192.168.1.9"))
            expected = replace(first, address="192.168.1.9", last_seen=here.clock.at)
            assert again == expected
            assert await here.registry.find("xiaozhi", "aa:bb:cc:dd:ee:01") == again
            assert await here.registry.find("willow", "aa:bb:cc:dd:ee:01") is None

    asyncio.run(main())


@pytest.mark.parametrize(
    ("address", "standing"),
    [
        ("127.0.0.1", "approved"),
        ("::1", "approved"),
        ("::ffff:127.0.0.1", "approved"),
        ("10.1.2.3", "approved"),
        ("fe80::1%eth0", "approved"),
        ("192.168.1.7", "new"),
        ("", "new"),
        ("localhost", "new"),
    ],
)
def test_networks_may_be_enough(url: str, address: str, standing: str) -> None:
    async def main() -> None:
        rule = ApprovalRule((ip_network("10.0.0.0/8"), ip_network("fe80::/10")))
        async with known(url, RegistrySettings(rule=rule)) as here:
            device = await here.registry.check_in(contact(address=address))
            assert (device.standing, device.pairing_code == "") == (standing, standing != "new")

    asyncio.run(main())


def test_who_waits_is_approved_when_it_comes_from_an_allowed_network(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            await here.registry.check_in(contact())
            device = await here.registry.check_in(contact(address="127.0.0.1"))
            assert (device.standing, device.pairing_code) == ("approved", "")
            await here.registry.block(device.id)
            again = await here.registry.check_in(contact(address="127.0.0.1"))
            assert again.standing == "blocked"

    asyncio.run(main())


def test_one_device_that_comes_many_times_at_once_is_one(url: str) -> None:
    async def main() -> None:
        async with known(url) as here, known(url) as other:
            coming = [one.registry.check_in(contact()) for one in 10 * [here, other]]
            found = await asyncio.gather(*coming)
            assert len({(one.id, one.pairing_code) for one in found}) == 1
            assert len(await here.registry.everyone()) == 1

    asyncio.run(main())


def test_contacts_within_a_minute_are_not_written(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            first = await here.registry.check_in(contact(firmware="1"))
            changed = here.registry.changed()
            here.clock.go_on(MINUTE / 2)
            assert await here.registry.check_in(contact(firmware="1")) == first
            here.clock.go_on(MINUTE / 2)
            later = await here.registry.check_in(contact(firmware="1"))
            assert later == replace(first, last_seen=here.clock.at)
            assert not changed.is_set()
            await here.registry.check_in(contact(firmware="2"))
            assert changed.is_set()

    asyncio.run(main())


def test_what_a_device_says_of_itself_is_made_fit_to_show(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            said = contact(name="a\x1b[31m\n " + 100 * "b", board="\u202e  x", firmware=200 * "1")
            device = await here.registry.check_in(said)
            assert device.name == ("a [31m " + 100 * "b")[:64]
            assert (device.board, len(device.firmware)) == ("x", 64)
            for wrong in ("", "  ", "a\nb", 129 * "a"):
                with pytest.raises(RequestError) as error:
                    await here.registry.check_in(contact(wrong))
                assert error.value.param == "hardware_id"

    asyncio.run(main())


def test_devices_are_named_placed_and_given_a_profile(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(contact(address="127.0.0.1"))
            profile = DeviceProfile(volume=30, tools=("set_timer",), answer_temperature=0.5)
            changed = here.registry.changed()
            await here.registry.edit(device.id, name="Küche", area="Kitchen")
            assert changed.is_set()
            edited = await here.registry.edit(device.id, profile=lambda _: profile)
            expected = replace(device, name="Küche", area="Kitchen", profile=profile)
            assert edited == await here.registry.by_id(device.id) == expected
            assert await here.registry.in_area(" KITCHEN ") == [expected]
            assert await here.registry.in_area("bath") == []
            cleared = await here.registry.edit(device.id, area="")
            assert cleared.area == ""

    asyncio.run(main())


def test_a_profile_from_before_a_field_was_there_has_its_default(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(contact())
            old = {"voice": "high", "of_a_later_version": 1}
            written = update(devices).values(profile=old)
            await here.registry._database.run(lambda connection: connection.execute(written))
            kept = await here.registry.by_id(device.id)
            assert kept.profile == DeviceProfile(voice="high", echo="")

    asyncio.run(main())


def test_only_approved_devices_stand_in_an_area(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(contact())
            await here.registry.edit(device.id, area="kitchen")
            assert await here.registry.in_area("kitchen") == []
            approved = await here.registry.approve(device.id, device.pairing_code)
            assert (approved.standing, approved.pairing_code) == ("approved", "")
            assert await here.registry.in_area("kitchen") == [approved]

    asyncio.run(main())


def test_a_forgotten_device_is_another_when_it_comes_back(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(contact(address="127.0.0.1"))
            await here.settings.write("willow.config", {"a": 1}, device.id)
            changed = here.registry.changed()
            await here.registry.forget(device.id)
            assert changed.is_set()
            assert await here.registry.everyone() == []
            assert await here.settings.read("willow.config", device.id) is None
            back = await here.registry.check_in(contact())
            assert (back.id != device.id, back.standing) == (True, "new")

    asyncio.run(main())


@pytest.mark.parametrize("action", ["by_id", "approve", "block", "forget", "edit", "issue_token"])
def test_an_unknown_device_is_not_found(url: str, action: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            with pytest.raises(NotFound) as error:
                await getattr(here.registry, action)("dev_0")
            assert error.value.code == "device_not_found"

    asyncio.run(main())


def test_devices_that_nobody_approves_are_limited(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_NEW", 3)

    async def come(here: Known, *numbers: int) -> list[Device]:
        found = []
        for number in numbers:
            here.clock.go_on(MINUTE)
            found.append(await here.registry.check_in(contact(f"aa:{number}")))
        return found

    async def main() -> None:
        async with known(url, RegistrySettings(new_life=timedelta(days=1))) as here:
            (first, *_) = await come(here, 1, 2, 3)
            await here.registry.approve(first.id, first.pairing_code)
            await come(here, 4, 2, 5)  # the second was seen again, so the third is the oldest
            left = {one.hardware_id for one in await here.registry.everyone()}
            assert left == {"aa:1", "aa:2", "aa:4", "aa:5"}
            here.clock.go_on(timedelta(days=1))
            await come(here, 6)
            left = {one.hardware_id for one in await here.registry.everyone()}
            assert left == {"aa:1", "aa:6"}

    asyncio.run(main())


def test_two_devices_never_wait_under_one_code(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter(["111111", "111111", "222222"])
    monkeypatch.setattr(registry_file, "new_code", lambda: next(codes))

    async def main() -> None:
        async with known(url) as here:
            found = [await here.registry.check_in(contact(f"aa:{one}")) for one in range(2)]
            assert [one.pairing_code for one in found] == ["111111", "222222"]

    asyncio.run(main())


def test_settings_are_any_json_and_forgotten_by_none(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            settings = here.settings
            assert await settings.read("willow.config") is None
            for value in ({"a": [1, None, "ü"]}, 7, False, "x"):
                await settings.write("willow.config", value)
                assert await settings.read("willow.config") == value
            assert await settings.read("willow.other") is None
            await settings.write("willow.config", None)
            assert await settings.read("willow.config") is None
            with pytest.raises(NotFound):
                await settings.write("willow.config", 1, "dev_0")

    asyncio.run(main())
