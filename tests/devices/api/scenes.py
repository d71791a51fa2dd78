"""The API of devices with a registry of its own."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from core.errors import RequestError
from devices.api.door import DevicesDoor
from devices.api.event_log import DeviceEventLog
from devices.api.routes import routes
from devices.fleet.directory import Device, DeviceKind, DeviceProfile
from devices.fleet.ota import FirmwareFolder
from devices.fleet.pairing import RegistrySettings
from devices.fleet.presence import Presence
from devices.notices.announcements import Announcements
from devices.registry.database import open_database
from devices.registry.registry import DeviceRegistry
from server.http.auth import AccessGate
from tests.devices.api.fakes import FakeTalks, german_notices
from tests.devices.registry.harness import Moment, contact
from tests.server.http.harness import error_of, serving

DEADLINE_S = 30


@dataclass
class Scene:
    client: ClientSession
    registry: DeviceRegistry
    presence: Presence
    announcements: Announcements
    clock: Moment
    door: DevicesDoor

    async def new(self, hardware_id: str = "aa:01", address: str = "192.168.1.7") -> Device:
        return await self.registry.check_in(contact(hardware_id, address))

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Returns the status and the body or the error."""
        async with self.client.request(method, f"/v1/{path}", json=body) as response:
            if response.status >= 400:
                return response.status, await error_of(response)
            return response.status, await response.json() if response.status != 204 else None


def only_german(profile: DeviceProfile) -> None:
    if profile.language not in ("", "de"):
        raise RequestError("there is: de", code="unsupported_language", param="audio.x")


@asynccontextmanager
async def scene(
    folder: Path,
    *,
    gate: AccessGate | None = None,
    heartbeat_s: float = 60.0,
    images: Mapping[DeviceKind, FirmwareFolder] | None = None,
) -> AsyncIterator[Scene]:
    clock = Moment()
    async with (
        asyncio.timeout(DEADLINE_S),
        open_database(f"sqlite:///{folder}/devices.db") as database,
    ):
        registry = DeviceRegistry(database, clock, RegistrySettings())
        journal = DeviceEventLog(clock)
        presence = Presence(journal)
        said = Announcements(FakeTalks(), registry, presence, clock)
        door = DevicesDoor(
            registry, presence, journal, said, only_german, german_notices, images, heartbeat_s
        )
        async with serving(routes(door), gate=gate) as client:
            yield Scene(client, registry, presence, said, clock, door)
