"""Wake words in a room with devices at several servers: one answers, whoever is away."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import aiohttp
import pytest

from core.errors import StorageError
from devices.fleet.arbitration import WakeLevel
from devices.fleet.wake_claims import WakeClaim
from devices.registry.machines import MachineRow, MachineSnapshot
from server.machines.claims import RoomClaims
from server.machines.table import MachineTable
from tests.server.machines.rows import row

ROOM = "kitchen"


def level_of(level_db: float | None) -> WakeLevel | None:
    return None if level_db is None else WakeLevel(level_db)


@dataclass
class House:
    """The database that all servers share; each room has one answer."""

    is_away: bool = False
    answered: dict[str, str] = field(default_factory=dict)

    async def claim_wake(self, room: str, device_id: str, life_s: float) -> bool:
        assert life_s == 1.5
        if self.is_away:
            raise StorageError("the device database cannot be read or written")
        return self.answered.setdefault(room, device_id) == device_id


@dataclass
class Site:
    """Servers that ask each other without a network between them."""

    house: House = field(default_factory=House)
    is_cut: bool = False
    servers: Mapping[int, RoomClaims] = field(default_factory=dict)

    @classmethod
    def of(cls, *numbers: int) -> "Site":
        site = cls()
        rows = [row(number, rooms=[ROOM]) for number in numbers]
        site.servers = {number: site.server(number, rows) for number in numbers}
        return site

    def server(self, number: int, rows: list[MachineRow]) -> RoomClaims:
        table = MachineTable(number)
        table.update(MachineSnapshot(rows, 0.0, 0.0))

        async def ask_owner(owner: MachineRow, claim: WakeClaim) -> bool:
            if self.is_cut:
                raise aiohttp.ClientConnectionError
            return await self.servers[owner.number].decide(claim, number)

        return RoomClaims(table, self.house, ask_owner, lambda: frozenset([ROOM]))  # type: ignore[arg-type]

    async def wake(self, **levels_db: float | None) -> dict[str, bool]:
        """Lets devices `dN` of the servers N claim at once; returns their verdicts."""
        asked = {
            name: self.servers[int(name[1:])].ask(
                WakeClaim(ROOM, f"okay {ROOM}", name, level_of(level_db))
            )
            for name, level_db in levels_db.items()
        }
        return dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))


def test_the_loudest_of_all_machines_answers() -> None:
    async def main() -> None:
        site = Site.of(1, 2, 3)
        assert await site.wake(d1=-30.0, d2=-10.0, d3=-20.0) == {
            "d1": False,
            "d2": True,
            "d3": False,
        }

    asyncio.run(main())


def test_a_device_that_alone_heard_the_word_answers_after_the_window() -> None:
    async def main() -> None:
        assert await Site.of(1, 2).wake(d2=None) == {"d2": True}

    asyncio.run(main())


def test_a_late_claim_is_refused() -> None:
    async def main() -> None:
        site = Site.of(1, 2)
        assert await site.wake(d1=-30.0) == {"d1": True}
        assert await site.wake(d2=-1.0) == {"d2": False}

    asyncio.run(main())


@pytest.mark.parametrize("is_away", [False, True])
def test_the_next_wake_word_of_the_same_device_is_answered(is_away: bool) -> None:
    async def main() -> None:
        site = Site.of(1, 2)
        site.house.is_away = is_away
        for _ in range(2):
            assert await site.wake(d1=-30.0) == {"d1": True}

    asyncio.run(main())


def test_while_the_machines_are_cut_off_the_database_decides() -> None:
    async def main() -> None:
        site = Site.of(1, 2, 3)
        site.is_cut = True
        assert sum((await site.wake(d1=-30.0, d2=-10.0, d3=-20.0)).values()) == 1

    asyncio.run(main())


def test_while_the_database_is_away_the_owner_decides() -> None:
    async def main() -> None:
        site = Site.of(1, 2, 3)
        site.house.is_away = True
        found = await site.wake(d1=-30.0, d2=-10.0, d3=-20.0)
        assert found == {"d1": False, "d2": True, "d3": False}

    asyncio.run(main())


def test_a_server_that_is_cut_off_from_everything_answers() -> None:
    async def main() -> None:
        site = Site.of(1, 2)
        site.is_cut = site.house.is_away = True
        assert await site.wake(d1=-30.0) == {"d1": True}
        assert await site.wake(d2=-30.0) == {"d2": True}

    asyncio.run(main())
