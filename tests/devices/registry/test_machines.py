"""Rows of the servers of several machines, and who may answer a wake word. PostgreSQL only."""

import asyncio
from dataclasses import replace

import pytest

from devices.registry.database import open_database
from devices.registry.machines import MachineRegistry, MachineRow
from tests.devices.registry.postgres import Postgres

pytestmark = pytest.mark.real

ONE = MachineRow(
    71,
    "https://a:8080",
    "10.0.0.5:8090",
    "ab" * 32,
    0.5,
    32,
    rooms=frozenset(["k"]),
    devices=frozenset(["dev_1"]),
)


def test_servers_see_each_other_until_they_withdraw(server: Postgres) -> None:
    async def main() -> None:
        url = server.create()
        async with open_database(url) as here, open_database(url) as there:
            one, two = MachineRegistry(here), MachineRegistry(there)
            assert one.is_shareable
            await one.exchange(ONE)
            seen = await two.exchange(replace(ONE, number=72, takes_calls=False))
            assert [replace(row, age_s=0.0) for row in seen.rows] == [
                ONE,
                replace(ONE, number=72, takes_calls=False),
            ]
            assert all(0.0 <= row.age_s < 5.0 for row in seen.rows)
            await one.exchange(replace(ONE, load=0.75))
            assert [row.load for row in (await two.exchange(None)).rows] == [0.75, 0.5]
            await two.withdraw(72)
            assert [row.number for row in (await one.exchange(None)).rows] == [71]

    asyncio.run(main())


def test_one_of_many_claims_at_once_succeeds(server: Postgres) -> None:
    async def main() -> None:
        url = server.create()
        async with (
            open_database(url) as one,
            open_database(url) as two,
            open_database(url) as three,
        ):
            registries = [MachineRegistry(database) for database in (one, two, three)]

            async def claim_at_once(room: str) -> list[bool]:
                claims = (
                    registry.claim_wake(room, f"dev_{index}", 60.0)
                    for index, registry in enumerate(registries)
                )
                return list(await asyncio.gather(*claims))

            for number in range(20):
                assert sum(await claim_at_once(f"room {number}")) == 1
            room = "kitchen"
            granted = await claim_at_once(room)
            winner = granted.index(True)
            assert await registries[winner].claim_wake(room, f"dev_{winner}", 60.0)
            assert not await registries[0].claim_wake(room, "dev_9", 60.0)
            assert await registries[0].claim_wake(room, "dev_9", 0.0)

    asyncio.run(main())


def test_sqlite_is_not_shareable() -> None:
    async def main() -> None:
        async with open_database("sqlite://") as database:
            assert not MachineRegistry(database).is_shareable

    asyncio.run(main())
