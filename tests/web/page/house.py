"""The page's scripted server with a real registry of devices."""

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web as aioweb

from core.errors import Conflict
from devices.api.door import DevicesDoor
from devices.api.event_log import DeviceEventLog
from devices.api.routes import routes
from devices.esphome.adoption.adoption_api import AdoptionServices, adoption_routes
from devices.fleet.directory import Device
from devices.fleet.presence import (
    ControlChanges,
    DeviceActivity,
    DeviceControls,
    DeviceNotification,
    Presence,
)
from devices.notices.announcements import Announcements
from devices.registry.registry import DeviceRegistry
from pipeline.conversation.conversation import Conversations
from tests.devices.registry.harness import Known, contact, known
from tests.web.browser import Stub


@dataclass
class Board:
    """A connected device."""

    activity: DeviceActivity = "idle"
    timing: Mapping[str, float] | None = None
    said: list[str] = field(default_factory=list)
    restarts: int = 0

    async def notify(self, notice: DeviceNotification) -> bool:
        self.said.append(notice.text)
        return True

    async def restart(self) -> bool:
        self.restarts += 1
        return True

    async def update(self, firmware: str) -> bool:
        return not firmware

    async def close(self) -> None: ...


@dataclass
class SettableBoard(Board):
    """A connected device with settings of its own."""

    controls: DeviceControls = field(default_factory=DeviceControls)
    changes: list[ControlChanges] = field(default_factory=list)
    refuses: str = ""

    async def control(self, changes: ControlChanges) -> None:
        if self.refuses:
            raise Conflict(self.refuses, code="not_supported")
        self.changes.append(changes)


@dataclass
class House(Stub):
    """The page's server with devices."""

    database: str = ""
    known: Known | None = None
    presence: Presence = field(default_factory=Presence)
    satellites: AdoptionServices | None = None
    boards: ExitStack = field(default_factory=ExitStack)

    def app(self) -> aioweb.Application:
        app = super().app()
        app.cleanup_ctx.append(self._devices)
        return app

    async def _devices(self, app: aioweb.Application) -> AsyncIterator[None]:
        async with known(self.database) as self.known:
            clock = self.known.clock
            announcements = Announcements(Conversations(), self.registry, self.presence, clock)
            door = DevicesDoor(
                self.registry,
                self.presence,
                DeviceEventLog(clock),
                announcements,
                lambda profile: None,
                lambda notice: None,
            )
            for route in (*routes(door), *adoption_routes(self.satellites)):
                app.router.add_route(route.method, route.path, route.handler)
            yield
            self.boards.close()

    @property
    def registry(self) -> DeviceRegistry:
        assert self.known is not None
        return self.known.registry

    def new(self, **said: Any) -> Device:
        """Connects a device that is unknown to the server."""
        return self.do(self.registry.check_in(contact(**said)))

    def connect(self, device: Device, board: Board) -> None:
        async def here() -> None:
            self.boards.enter_context(self.presence.connected(device.id, board))

        self.do(here())
