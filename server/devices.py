"""The devices of one process: their directory, and which of them are here."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from core.ports import Clock
from devices.presence import Presence
from devices.registry.database import opened
from devices.registry.registry import Registry
from devices.registry.settings import StoredSettings
from server.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """What every device door is given."""

    registry: Registry
    "The `Directory`."
    settings: StoredSettings
    presence: Presence


@asynccontextmanager
async def known_devices(config: Config, clock: Clock) -> AsyncIterator[Devices]:
    """Raises ConfigError for a database that can never work."""
    async with opened(config.devices.url(config.paths.state_dir)) as database:
        yield Devices(
            registry=Registry(database, clock, config.devices.as_settings()),
            settings=StoredSettings(database),
            presence=Presence(),
        )
