"""Any device of the network can claim a MAC, so a device has a second identity besides it."""

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import inspect, select, text, update

from core.errors import NotFound, RequestError
from devices.fleet.directory import Device, DeviceClaims, DeviceKind
from devices.fleet.pairing import RegistrySettings
from devices.registry import tokens
from devices.registry.database import engine_of, migrate
from devices.registry.tables import devices
from tests.devices.registry.harness import Known, Moment, contact, known

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("postgres")]

MAC = "aa:bb:cc:dd:ee:01"
OURS, OTHERS, THIRD = (sha256(one).digest() for one in (b"ours", b"others", b"third"))
CODE_LIFE = timedelta(minutes=10)


def who(identity: bytes, address: str = "192.168.1.7", firmware: str = "") -> DeviceClaims:
    return replace(contact(MAC, address, firmware=firmware), identity=identity)


async def approved(here: Known) -> tuple[Device, str]:
    """Approves a device with `OURS`; returns it and its key."""
    device = await here.registry.pair((await here.registry.check_in(who(OURS))).pairing_code)
    return device, await here.registry.issue_token(device.id)


async def row(here: Known) -> Any:
    return await here.database.run(lambda one: one.execute(select(devices)).one())


def test_a_key_of_an_unapproved_board_is_refused(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            waiting = await here.registry.check_in(who(OURS))
            key = await here.registry.issue_token(waiting.id, OURS)
            assert await here.registry.device_with_key(key, OURS) is None
            for nobody in (b"", OTHERS):
                with pytest.raises(NotFound):
                    await here.registry.issue_token(waiting.id, nobody)
            device = await here.registry.pair(waiting.pairing_code)
            assert await here.registry.device_with_key(key, OURS) == device
            assert await here.registry.device_with_key(key, OTHERS) is None

    asyncio.run(main())


def test_a_claim_of_a_board_gets_its_own_key_and_revokes_none(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device, _ = await approved(here)
            ours = await here.registry.issue_token(device.id, OURS)
            claim = await here.registry.check_in(who(OTHERS))
            keys = [await here.registry.issue_token(device.id, OTHERS) for _ in range(20)]
            assert await here.registry.device_with_key(ours, OURS)
            assert await here.registry.device_with_key(keys[-1], OTHERS) is None
            assert await here.registry.device_with_key(keys[-1], OURS) is None
            await here.registry.pair(claim.pairing_code)
            held = [await here.registry.device_with_key(key, OTHERS) for key in keys]
            assert sum(one is not None for one in held) == tokens.MAX_PER_DEVICE
            for identity in (OURS, OTHERS):
                assert await here.registry.device_with_key(ours, identity) is None

    asyncio.run(main())


def test_another_identity_waits_and_changes_nothing(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device, token = await approved(here)
            changed = here.registry.changed()
            other = await here.registry.check_in(who(OTHERS, "192.168.1.66", firmware="9.9"))
            assert changed.is_set()
            assert (other.id, other.standing, len(other.pairing_code)) == (device.id, "new", 6)
            (shown,) = await here.registry.all_devices()
            assert (shown.standing, shown.has_new_identity) == ("approved", True)
            assert shown.pairing_code == other.pairing_code
            assert (shown.address, shown.firmware) == ("192.168.1.7", "")
            assert await here.registry.find("xiaozhi", MAC, OTHERS) == other
            assert await here.registry.device_with_key(token, OTHERS) is None
            assert await here.registry.device_with_key(token, OURS) == shown
            assert (await here.registry.check_in(who(OURS))).standing == "approved"
            again = await here.registry.check_in(who(OTHERS))
            assert again.pairing_code == other.pairing_code

    asyncio.run(main())


@pytest.mark.parametrize("how", ["pair", "approve"])
def test_a_newly_approved_identity_replaces_the_old_one(url: str, how: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device, token = await approved(here)
            await here.registry.edit(device.id, name="Küche")
            other = await here.registry.check_in(who(OTHERS))
            said = [other.pairing_code] if how == "pair" else [other.id, other.pairing_code]
            now = await getattr(here.registry, how)(*said)
            assert (now.name, now.standing, now.identity) == ("Küche", "approved", OTHERS)
            assert (now.has_new_identity, now.pairing_code) == (False, "")
            assert (await here.registry.check_in(who(OTHERS))).standing == "approved"
            assert (await here.registry.check_in(who(OURS))).standing == "new"
            for identity in (OURS, OTHERS):
                assert await here.registry.device_with_key(token, identity) is None

    asyncio.run(main())


def test_a_code_approves_only_the_identity_that_showed_it(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            new = await here.registry.check_in(who(OURS))
            between = await here.registry.check_in(who(OTHERS))
            assert (between.standing, between.pairing_code) == ("new", "")
            assert (await here.registry.pair(new.pairing_code)).identity == OURS
            first = await here.registry.check_in(who(OTHERS))
            second = await here.registry.check_in(who(THIRD))
            assert (second.standing, second.pairing_code) == ("new", "")
            found = await here.registry.find("xiaozhi", MAC, THIRD)
            assert found is not None
            assert (found.standing, found.pairing_code) == ("new", "")
            here.clock.go_on(CODE_LIFE)
            third = await here.registry.check_in(who(THIRD))
            assert third.pairing_code not in ("", first.pairing_code)
            assert (await here.registry.pair(third.pairing_code)).identity == THIRD

    asyncio.run(main())


@pytest.mark.parametrize("is_known", [False, True])
def test_passing_identities_invalidate_no_code_and_send_no_event(url: str, is_known: bool) -> None:
    async def main() -> None:
        async with known(url) as here:
            if is_known:
                await approved(here)
            shown = await here.registry.check_in(who(OTHERS))
            kept, changed = await row(here), here.registry.changed()
            for number in range(50):
                thief = await here.registry.check_in(who(sha256(b"%d" % number).digest()))
                assert (thief.standing, thief.pairing_code) == ("new", "")
            assert not changed.is_set()
            assert await row(here) == kept
            assert (await here.registry.pair(shown.pairing_code)).identity == OTHERS

    asyncio.run(main())


def test_an_approval_by_id_needs_the_code_on_the_device(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:

            async def refused(code: str) -> str:
                with pytest.raises(RequestError) as error:
                    await here.registry.approve(device.id, code)
                assert (await row(here)).identity == OURS
                return error.value.code

            device, _ = await approved(here)
            assert (await here.registry.approve(device.id)).standing == "approved"
            assert await refused("123456") == "pairing_code_unknown"  # nobody waits
            reset = await here.registry.check_in(who(OTHERS))
            assert await refused("") == "pairing_code_needed"
            assert await refused("12345") == "invalid_value"
            here.clock.go_on(CODE_LIFE)
            assert await refused(reset.pairing_code) == "pairing_code_expired"
            thief = await here.registry.check_in(who(THIRD))
            assert await refused(reset.pairing_code) == "pairing_code_unknown"
            said = f"{thief.pairing_code[:3]} {thief.pairing_code[3:]}"
            assert (await here.registry.approve(device.id, said)).identity == THIRD

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["willow", "wyoming"])
def test_kinds_that_show_no_code_are_approved_without_one(url: str, kind: DeviceKind) -> None:
    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(contact(kind=kind))
            assert (device.standing, device.pairing_code) == ("new", "")
            changed = here.registry.changed()
            await here.registry.check_in(contact(kind=kind))
            assert not changed.is_set()
            await here.database.run(  # as versions before made one
                lambda one: one.execute(update(devices).values(pairing_code="123456"))
            )
            assert (await here.registry.by_id(device.id)).pairing_code == ""
            assert (await here.registry.approve(device.id)).standing == "approved"

    asyncio.run(main())


def test_devices_approved_before_identities_existed_stay_approved(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its key stays valid, too."""
    caplog.set_level(logging.INFO)
    engine = engine_of(url)
    with engine.begin() as connection:
        migrate(connection, "0002")
        assert "identity" not in {one["name"] for one in inspect(connection).get_columns("devices")}
        connection.execute(
            text(
                "INSERT INTO devices (id, kind, hardware_id, name, area, standing, profile, board,"
                " firmware, address, first_seen, last_seen) VALUES ('dev_1', 'xiaozhi', :mac, 'x',"
                " '', 'approved', '{}', '', '', '', :at, :at)"
            ),
            {"mac": MAC, "at": Moment().at},
        )
        connection.execute(
            text(
                "INSERT INTO tokens (digest, device_id, issued, expires)"
                " VALUES (:digest, 'dev_1', :at, :until)"
            ),
            {
                "digest": tokens.digest_of("dev_old"),
                "at": Moment().at,
                "until": Moment().at + timedelta(days=1),
            },
        )
    engine.dispose()

    async def main() -> None:
        async with known(url) as here:
            key = "dev_old"
            assert await here.registry.device_with_key(key)
            assert await here.registry.find("xiaozhi", MAC, OTHERS)
            taken = await here.registry.device_with_key(key, OURS)
            assert taken is not None
            assert taken.identity == OURS
            assert (await here.registry.check_in(who(OURS))).standing == "approved"
            assert (await here.registry.check_in(who(OTHERS))).standing == "new"
            assert await here.registry.device_with_key(key, OTHERS) is None

    asyncio.run(main())
    assert caplog.text.count("device dev_1: identity adopted") == 1


def test_the_first_check_in_sets_the_identity_once(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(who(b""))
            await here.registry.approve(device.id, device.pairing_code)
            assert (await here.registry.check_in(who(OURS))).standing == "approved"
            assert (await here.registry.check_in(who(OTHERS))).standing == "new"
            assert (await here.registry.check_in(who(b""))).standing == "approved"  # Willow's
            assert caplog.text.count(f"device {device.id}: identity adopted") == 1

    asyncio.run(main())


def test_a_blocked_device_stays_blocked_for_any_identity(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device, _ = await approved(here)
            await here.registry.check_in(who(OTHERS))
            blocked = await here.registry.block(device.id)
            assert (blocked.has_new_identity, blocked.pairing_code) == (False, "")
            for identity in (OTHERS, OURS):
                assert (await here.registry.check_in(who(identity))).standing == "blocked"
            assert (await here.registry.approve(device.id)).identity == OURS
            assert (await here.registry.check_in(who(OTHERS))).standing == "new"

    asyncio.run(main())


def test_approval_by_network_covers_another_identity_too(url: str) -> None:
    async def main() -> None:
        async with known(url, RegistrySettings()) as here:
            _, token = await approved(here)
            await here.registry.check_in(who(THIRD))
            other = await here.registry.check_in(who(OTHERS, "127.0.0.1"))
            assert (other.standing, other.identity) == ("approved", OTHERS)
            assert (other.has_new_identity, other.pairing_code) == (False, "")
            assert await here.registry.device_with_key(token, OURS) is None

    asyncio.run(main())


def test_an_identity_that_left_is_hidden_after_a_while(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            await approved(here)
            other = await here.registry.check_in(who(OTHERS))
            here.clock.go_on(CODE_LIFE)
            new_code = await here.registry.check_in(who(OTHERS))
            assert new_code.pairing_code != other.pairing_code
            assert (await here.registry.check_in(who(OURS))).has_new_identity
            here.clock.go_on(CODE_LIFE)
            assert not (await here.registry.check_in(who(OURS))).has_new_identity
            assert (await row(here)).pairing_code is None

    asyncio.run(main())


def test_a_claim_is_stored_once_and_sends_no_event(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            await approved(here)
            await here.registry.check_in(who(OTHERS))
            kept, changed = await row(here), here.registry.changed()
            here.clock.go_on(timedelta(minutes=5))
            other = await here.registry.check_in(who(OTHERS))
            assert await row(here) == kept
            assert not changed.is_set()
            assert repr(OTHERS) not in repr((other, who(OTHERS)))

    asyncio.run(main())
