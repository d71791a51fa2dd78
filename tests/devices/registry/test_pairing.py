"""Codes that approve a device, and keys that prove the approval."""

import asyncio
import secrets
from datetime import timedelta

import pytest
from sqlalchemy import select

from core.errors import NotFound, OverloadedError, RequestError
from devices.fleet.pairing import MAX_WRONG_GUESSES, RegistrySettings
from devices.registry.tables import tokens
from devices.registry.tokens import MAX_PER_DEVICE, digest_of
from tests.devices.registry.harness import Known, contact, known

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("postgres")]

MINUTE = timedelta(minutes=1)


async def refused(here: Known, code: str) -> str:
    with pytest.raises((RequestError, OverloadedError)) as error:
        await here.registry.pair(code)
    return error.value.code


def test_a_code_approves_once(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            code = (await here.registry.check_in(contact())).pairing_code
            changed = here.registry.changed()
            device = await here.registry.pair(f" {code[:3]}-{code[3:]} ")
            assert (device.standing, device.pairing_code) == ("approved", "")
            assert changed.is_set()
            assert await refused(here, code) == "pairing_code_used"
            assert (await here.registry.check_in(contact())).standing == "approved"

    asyncio.run(main())


def test_a_code_expires_and_the_device_gets_another(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            first = await here.registry.check_in(contact())
            here.clock.go_on(9 * MINUTE)
            assert (await here.registry.check_in(contact())).pairing_code == first.pairing_code
            here.clock.go_on(MINUTE)
            assert await refused(here, first.pairing_code) == "pairing_code_expired"
            second = await here.registry.check_in(contact())
            assert second.pairing_code != first.pairing_code
            assert await refused(here, first.pairing_code) == "pairing_code_unknown"
            assert (await here.registry.pair(second.pairing_code)).id == first.id

    asyncio.run(main())


@pytest.mark.parametrize("text", ["", "12345", "1234567", "12345a", "١٢٣٤٥٦", "0x1234"])
def test_a_malformed_code_is_refused_and_not_counted_as_a_guess(url: str, text: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            for _ in range(2 * MAX_WRONG_GUESSES):
                assert await refused(here, text) == "invalid_value"

    asyncio.run(main())


def test_only_wrong_codes_are_limited(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            for number in range(3 * MAX_WRONG_GUESSES):
                device = await here.registry.check_in(contact(f"aa:{number}"))
                await here.registry.pair(device.pairing_code)
            waits = await here.registry.check_in(contact("bb"))
            wrong = f"{(int(waits.pairing_code) + 1) % 10**6:06d}"
            coming = [refused(here, wrong) for _ in range(2 * MAX_WRONG_GUESSES)]
            codes = await asyncio.gather(*coming)
            assert codes.count("pairing_code_unknown") == MAX_WRONG_GUESSES
            assert await refused(here, waits.pairing_code) == "too_many_guesses"
            here.clock.go_on(MINUTE)
            assert (await here.registry.pair(waits.pairing_code)).id == waits.id

    asyncio.run(main())


def test_only_approved_devices_have_keys_and_digests_are_stored(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(contact())
            with pytest.raises(NotFound) as error:
                await here.registry.issue_token(device.id)
            assert error.value.code == "device_not_approved"
            device = await here.registry.approve(device.id, device.pairing_code)
            first, second = [await here.registry.issue_token(device.id) for _ in range(2)]
            assert first != second
            assert (
                await here.registry.device_with_key(first)
                == await here.registry.device_with_key(second)
                == device
            )
            for wrong in ("", "dev_", first[:-1], first.removeprefix("dev_"), "dev_\udcff"):
                assert await here.registry.device_with_key(wrong) is None
            kept = await here.database.run(lambda one: one.execute(select(tokens)).all())
            assert {row.digest for row in kept} == {digest_of(first), digest_of(second)}

    asyncio.run(main())


def test_keys_expire(url: str) -> None:
    async def main() -> None:
        async with known(url, RegistrySettings(token_life=timedelta(days=2))) as here:
            device = await here.registry.check_in(contact(address="127.0.0.1"))
            token = await here.registry.issue_token(device.id)
            here.clock.go_on(timedelta(days=1))
            assert await here.registry.device_with_key(token)
            here.clock.go_on(timedelta(days=1))
            assert await here.registry.device_with_key(token) is None

    asyncio.run(main())


@pytest.mark.parametrize("end", ["block", "forget"])
def test_keys_of_a_blocked_or_forgotten_device_are_invalid_for_ever(url: str, end: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(contact(address="127.0.0.1"))
            token = await here.registry.issue_token(device.id)
            await getattr(here.registry, end)(device.id)
            assert await here.registry.device_with_key(token) is None
            if end == "block":
                await here.registry.approve(device.id)
                assert await here.registry.device_with_key(token) is None

    asyncio.run(main())


def test_the_number_of_keys_per_device_is_limited(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(contact(address="127.0.0.1"))
            issued = []
            for _ in range(MAX_PER_DEVICE + 2):
                here.clock.go_on(MINUTE)
                issued.append(await here.registry.issue_token(device.id))
            held = [bool(await here.registry.device_with_key(token)) for token in issued]
            assert held == [False, False, *(MAX_PER_DEVICE * [True])]

    asyncio.run(main())


def test_a_random_key_is_refused(url: str) -> None:
    async def main() -> None:
        async with known(url) as here:
            device = await here.registry.check_in(contact(address="127.0.0.1"))
            token = await here.registry.issue_token(device.id)
            assert len(token) >= len("dev_") + 43  # 256 bits
            assert await here.registry.device_with_key("dev_" + secrets.token_urlsafe(32)) is None

    asyncio.run(main())
