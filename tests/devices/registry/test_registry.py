"""The registry: check-ins, approvals, names and removals."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network

import pytest
from sqlalchemy import update

from core.errors import NotFound, RequestError
from devices.fleet.directory import Device, DeviceProfile
from devices.fleet.pairing import ApprovalRule, RegistrySettings
from devices.registry import queries
from devices.registry import registry as registry_file
from devices.registry.tables import devices
from tests.devices.registry.harness import Known, contact, known

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("postgres")]

MINUTE = timedelta(minutes=1)


def test_a_new_device_gets_a_code_and_keeps_its_id(url: str) -> None:
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
def test_devices_of_an_allowed_network_are_approved(url: str, address: str, standing: str) -> None:
    async def main() -> None:
        rule = ApprovalRule((ip_network("10.0.0.0/8"), ip_network("fe80::/10")))
        async with known(url, RegistrySettings(rule=rule)) as here:
            device = await here.registry.check_in(contact(address=address))
            assert (device.standing, device.pairing_code == "") == (standing, standing != "new")

    asyncio.run(main())


def test_a_waiting_device_is_approved_from_an_allowed_network(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            await here.registry.check_in(contact())
            device = await here.registry.check_in(contact(address="127.0.0.1"))
            assert (device.standing, device.pairing_code) == ("approved", "")
            await here.registry.block(device.id)
            again = await here.registry.check_in(contact(address="127.0.0.1"))
            assert again.standing == "blocked"

    asyncio.run(main())


def test_simultaneous_check_ins_make_one_device(url: str) -> None:
    async def main() -> None:
        async with known(url) as here, known(url) as other:
            coming = [one.registry.check_in(contact()) for one in 10 * [here, other]]
            found = await asyncio.gather(*coming)
            assert len({(one.id, one.pairing_code) for one in found}) == 1
            assert len(await here.registry.all_devices()) == 1

    asyncio.run(main())


def test_contacts_within_a_minute_are_not_stored(url: str) -> None:
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


def test_texts_from_a_device_are_made_printable(url: str) -> None:
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


def test_devices_get_a_name_an_area_and_a_profile(url: str) -> None:
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


def test_an_older_profile_gets_the_defaults_of_new_fields(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(contact())
            old = {"voice": "high", "of_a_later_version": 1}
            written = update(devices).values(profile=old)
            await here.registry._database.run(lambda connection: connection.execute(written))
            kept = await here.registry.by_id(device.id)
            assert kept.profile == DeviceProfile(voice="high", echo="")

    asyncio.run(main())


def test_only_approved_devices_are_in_an_area(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(contact())
            await here.registry.edit(device.id, area="kitchen")
            assert await here.registry.in_area("kitchen") == []
            approved = await here.registry.approve(device.id, device.pairing_code)
            assert (approved.standing, approved.pairing_code) == ("approved", "")
            assert await here.registry.in_area("kitchen") == [approved]

    asyncio.run(main())


def test_a_forgotten_device_is_new_when_it_returns(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(contact(address="127.0.0.1"))
            await here.settings.write("willow.config", {"a": 1}, device.id)
            changed = here.registry.changed()
            await here.registry.forget(device.id)
            assert changed.is_set()
            assert await here.registry.all_devices() == []
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


def test_the_number_of_unapproved_devices_is_limited(
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
            left = {one.hardware_id for one in await here.registry.all_devices()}
            assert left == {"aa:1", "aa:2", "aa:4", "aa:5"}
            here.clock.go_on(timedelta(days=1))
            await come(here, 6)
            left = {one.hardware_id for one in await here.registry.all_devices()}
            assert left == {"aa:1", "aa:6"}

    asyncio.run(main())


def test_waiting_devices_have_different_codes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter(["111111", "111111", "222222"])
    monkeypatch.setattr(registry_file, "new_code", lambda: next(codes))

    async def main() -> None:
        async with known(url) as here:
            found = [await here.registry.check_in(contact(f"aa:{one}")) for one in range(2)]
            assert [one.pairing_code for one in found] == ["111111", "222222"]

    asyncio.run(main())


def test_device_settings_may_be_any_json(url: str) -> None:
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
