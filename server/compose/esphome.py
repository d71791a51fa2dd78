"""Opens the door for ESPHome satellites, whose library is an extra."""

import asyncio
import socket
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.errors import ConfigError
from core.http.routes import Route
from devices.esphome.adoption.adoption_api import AdoptionServices
from devices.esphome.adoption.discovery import SERVICE, FoundSatellites
from devices.esphome.adoption.satellite_store import AdoptedSatellites
from devices.esphome.routes import routes
from devices.esphome.sounds import Sounds
from pipeline.services import SessionServices
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import InitialSettings
from pipeline.speech.file import SpeechFiles
from pipeline.tools.home import Home
from server.compose.devices import DeviceServices
from server.config import Config
from server.http.edge import ErrorBoundary
from server.net.mdns import mdns_search
from server.version import product_version

if TYPE_CHECKING:
    from devices.esphome.door import EspHomeDoor


@dataclass(frozen=True, slots=True)
class EspHomeDoors:
    """The door that connects to ESPHome satellites, and what they fetch."""

    door: "EspHomeDoor"
    routes: tuple[Route, ...]
    "Routes of the sounds, on a listener of their own."
    adoption: AdoptionServices | None
    "Services by which the page adopts satellites; None: the server does not look for them."

    @asynccontextmanager
    async def run(self, sockets: Sequence[socket.socket]) -> AsyncIterator[None]:
        """Keeps the connections to the satellites until the context is left. `sockets`: of the
        listener of the sounds."""
        async with asyncio.TaskGroup() as tasks:
            port: int = sockets[0].getsockname()[1]
            work = [tasks.create_task(self.door.run(port), name="esphome")]
            if self.adoption is not None:
                search = mdns_search(SERVICE, self.adoption.found)
                work.append(tasks.create_task(search, name="esphome-search"))
            yield
            for task in work:
                task.cancel()


def open_esphome_doors(
    config: Config,
    devices: DeviceServices,
    sessions: Sessions,
    session_services: SessionServices,
    speech_files: SpeechFiles,
    server_settings: InitialSettings,
    home: Home,
) -> EspHomeDoors | None:
    """Opens the door if a satellite is configured. Raises ConfigError without its library."""
    if not config.esphome.is_on:
        return None
    try:
        from devices.esphome.adoption.adoption import Adoption
        from devices.esphome.connection import EspHomeServices
        from devices.esphome.door import EspHomeDoor
    except ImportError as error:
        raise ConfigError(
            "config.esphome.devices needs the extra esphome: `earshot extras add esphome`"
            f" ({error})"
        ) from error
    clock, metrics = session_services.clock, session_services.metrics
    sounds = Sounds(clock)
    services = EspHomeServices(
        sessions=sessions,
        sounds=sounds,
        speech_files=speech_files,
        presence=devices.presence,
        wake_arbiter=devices.wake_arbiter,
        clock=clock,
        metrics=metrics,
        home=home,
        language=config.language,
    )
    registry, found = devices.registry, FoundSatellites()
    adopted = AdoptedSatellites(devices.settings, registry.all_devices)
    adoption = Adoption(
        adopted=adopted,
        directory=registry,
        approve=registry.approve,
        version=product_version(),
    )

    async def ours() -> Collection[str]:
        connected = devices.presence.ids()
        known = {one.hardware_id for one in await registry.all_devices() if one.id in connected}
        return known | {one.hardware_id for one in await adopted.all()}

    door = EspHomeDoor(
        services,
        devices.registry,
        devices.registry.approve,
        ErrorBoundary(metrics),
        config.esphome.as_settings(server_settings),
        product_version(),
        adopted,
        found,
    )
    can_adopt = config.esphome.discovery
    offered = AdoptionServices(found, ours, adoption.adopt) if can_adopt else None
    return EspHomeDoors(door, routes(sounds), offered)
