"""A registry with a clock that stands still until it is moved."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from devices.fleet.directory import DeviceClaims, DeviceKind
from devices.fleet.pairing import RegistrySettings
from devices.registry.database import Database, open_database
from devices.registry.registry import DeviceRegistry
from devices.registry.settings import DatabaseSettingsStore


@dataclass
class Moment:
    """A clock that the test moves."""

    at: datetime = field(default_factory=lambda: datetime(2026, 3, 1, 12, 0, tzinfo=UTC))
    seconds: float = 1000.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> datetime:
        return self.at

    def go_on(self, by: timedelta) -> None:
        self.at += by
        self.seconds += by.total_seconds()


@dataclass
class Known:
    registry: DeviceRegistry
    settings: DatabaseSettingsStore
    clock: Moment
    database: Database


@asynccontextmanager
async def known(url: str, chosen: RegistrySettings | None = None) -> AsyncIterator[Known]:
    clock = Moment()
    async with open_database(url) as database:
        registry = DeviceRegistry(database, clock, chosen or RegistrySettings())
        yield Known(registry, DatabaseSettingsStore(database), clock, database)


def contact(
    hardware_id: str = "aa:bb:cc:dd:ee:01",
    address: str = "192.168.1.7",
    kind: DeviceKind = "xiaozhi",
    **said: Any,
) -> DeviceClaims:
    return DeviceClaims(kind=kind, hardware_id=hardware_id, address=address, **said)
