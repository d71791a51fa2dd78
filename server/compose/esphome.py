"""Opens the door for ESPHome satellites, whose library is an extra."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.errors import ConfigError
from core.http.routes import Route
from devices.esphome.routes import routes
from devices.esphome.sounds import Sounds
from pipeline.services import SessionServices
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import InitialSettings
from pipeline.speech.file import SpeechFiles
from server.compose.devices import DeviceServices
from server.config import Config
from server.http.edge import ErrorBoundary
from server.version import product_version

if TYPE_CHECKING:
    from devices.esphome.door import EspHomeDoor


@dataclass(frozen=True, slots=True)
class EspHomeDoors:
    """The door that connects to ESPHome satellites, and what they fetch."""

    door: "EspHomeDoor"
    routes: tuple[Route, ...]
    "Routes of the sounds, on a listener of their own."

    @asynccontextmanager
    async def run(self, sockets: Sequence[socket.socket]) -> AsyncIterator[None]:
        """Keeps the connections to the satellites until the context is left. `sockets`: of the
        listener of the sounds."""
        async with asyncio.TaskGroup() as tasks:
            port: int = sockets[0].getsockname()[1]
            connecting = tasks.create_task(self.door.run(port), name="esphome")
            yield
            connecting.cancel()


def open_esphome_doors(
    config: Config,
    devices: DeviceServices,
    sessions: Sessions,
    session_services: SessionServices,
    speech_files: SpeechFiles,
    server_settings: InitialSettings,
) -> EspHomeDoors | None:
    """Opens the door if a satellite is configured. Raises ConfigError without its library."""
    if not config.esphome.is_on:
        return None
    try:
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
        clock=clock,
        metrics=metrics,
        language=config.language,
    )
    door = EspHomeDoor(
        services,
        devices.registry,
        devices.registry.approve,
        ErrorBoundary(metrics),
        config.esphome.as_settings(server_settings),
        product_version(),
    )
    return EspHomeDoors(door, routes(sounds))
