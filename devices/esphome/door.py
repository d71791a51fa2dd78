"""The ESPHome door: keeps a connection to every device that is named or adopted.

Here the server is the client, as Home Assistant is: the device listens, and one client may use its
voice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from aioesphomeapi.client import APIClient
from aioesphomeapi.core import APIConnectionError
from aioesphomeapi.model import DeviceInfo, EntityInfo

from core.errors import StorageError
from core.ports import WorkGuard
from core.tasks import Backoff, single_error
from devices.esphome.adoption.discovery import FoundSatellites
from devices.esphome.adoption.satellite_store import AdoptedSatellites
from devices.esphome.connection import EspHomeConnection, EspHomeServices
from devices.esphome.errors import SETTLE_S, failure_of
from devices.esphome.link import CONNECT_LIMIT_S, SatelliteAbilities, claims_of, connected
from devices.esphome.settings import EspHomeAddress, EspHomeSettings
from devices.fleet.directory import Device, DeviceDirectory
from devices.notices.announcements import wait_for_any
from pipeline.shared.settings import SessionSettings

logger = logging.getLogger(__name__)

FIRST_WAIT_S, LONGEST_WAIT_S, LASTED_S = 1.0, 60.0, 60.0
"""Waits between attempts to connect. A device that starts again is back within 10 s; one that is
switched off may be switched on at any time."""

CRASH_S = 5.0
"A device that is gone this soon after a question has crashed on it."

CLEAR_LIMIT_S = 2.0
"Longest wait for a device to drop the key that we gave it."

RETRY_S = 5.0
"Wait until the list of adopted devices is read again after the database failed."


class EspHomeDoor:
    """The door. `run` serves; cancelling it ends every connection."""

    def __init__(
        self,
        services: EspHomeServices,
        directory: DeviceDirectory,
        approve: Callable[[str], Awaitable[Device]],
        guard: WorkGuard,
        settings: EspHomeSettings,
        version: str,
        adopted: AdoptedSatellites,
        found: FoundSatellites,
    ) -> None:
        """approve: approves a device by its id. guard: runs a device's task, so that a bug in one
        does not end the others."""
        self._services, self._directory, self._approve = services, directory, approve
        self._guard, self._settings, self._version = guard, settings, version
        self._adopted, self._found = adopted, found
        self._failures: dict[EspHomeAddress, str] = {}
        "Code of the present failure, so that each is logged once."
        self._unasked: set[str] = set()
        "Ids of devices that broke off when they were asked for their wake words."

    async def run(self, sounds_port: int) -> None:
        """Serves all devices until cancelled. sounds_port: port of our HTTP server for devices."""
        async with asyncio.TaskGroup() as tasks:
            for address in self._settings.devices:
                self._start(tasks, address, sounds_port)
            await self._follow_adopted(tasks, sounds_port)

    async def _follow_adopted(self, tasks: asyncio.TaskGroup, sounds_port: int) -> None:
        """Starts and ends the connections of adopted devices as they are adopted and forgotten."""
        running: dict[EspHomeAddress, asyncio.Task[None]] = {}
        while True:
            changes = (self._adopted.changed(), self._directory.changed())
            try:
                async with self._adopted.changing:
                    wanted = await self._adopted.all()
            except StorageError:  # the database logs it
                await asyncio.sleep(RETRY_S)
                continue
            for address in [one for one in running if one not in wanted]:
                running.pop(address).cancel()
            for address in wanted:
                if address not in running:
                    running[address] = self._start(tasks, address, sounds_port)
            await wait_for_any(*changes)

    def _start(
        self, tasks: asyncio.TaskGroup, address: EspHomeAddress, sounds_port: int
    ) -> asyncio.Task[None]:
        keep = partial(self._keep, address, sounds_port)
        return tasks.create_task(self._guarded(keep), name=f"esphome-{address.host}")

    async def _guarded(self, keep: Callable[[], Awaitable[None]]) -> None:
        while True:  # a bug is logged by the guard; the device gets another connection
            await self._guard(keep(), "esphome device")
            await asyncio.sleep(LONGEST_WAIT_S)

    async def _keep(self, address: EspHomeAddress, sounds_port: int) -> None:
        """Keeps one device connected."""
        clock = self._services.clock
        backoff = Backoff.doubling(FIRST_WAIT_S, LONGEST_WAIT_S, LASTED_S)
        while True:
            began_s, settle_s = clock.now(), 0.0
            try:
                await self._connect_once(address, sounds_port)
            except (APIConnectionError, OSError) as error:
                failure = failure_of(error, has_key=bool(address.key))
                settle_s = SETTLE_S if failure.needs_person else 0.0
                self._note_failure(address, failure.code, failure.message)
            except TimeoutError:
                self._note_failure(address, "unreachable", "it does not answer in time")
            except StorageError as error:
                self._note_failure(address, error.code, "the device directory is not available")
            await asyncio.sleep(max(settle_s, backoff.fail(clock.now() - began_s)))

    def _note_failure(self, address: EspHomeAddress, code: str, message: str) -> None:
        self._services.metrics.count("earshot_esphome_connect_failures", code=code)
        level = logging.DEBUG if self._failures.get(address) == code else logging.WARNING
        self._failures[address] = code
        logger.log(level, "! esphome device at %s: %s", address.host, message)

    async def _connect_once(self, address: EspHomeAddress, sounds_port: int) -> None:
        """Connects and serves the device until it is gone. Raises APIConnectionError, OSError,
        TimeoutError, StorageError."""
        is_gone = asyncio.Event()

        async def on_stop(is_expected: bool) -> None:
            is_gone.set()

        async with connected(self._present(address), self._version, on_stop) as client:
            try:
                await self._serve_client(client, address, sounds_port, is_gone)
            finally:
                if address.is_own_key and not is_gone.is_set():
                    await self._clear_key(client, address)

    async def _serve_client(
        self, client: APIClient, address: EspHomeAddress, sounds_port: int, is_gone: asyncio.Event
    ) -> None:
        async with asyncio.timeout(CONNECT_LIMIT_S):
            info, entities, _ = await client.device_info_and_list_entities()
        abilities = SatelliteAbilities.of(info, entities, client.api_version)
        if not abilities.features:
            self._note_failure(address, "no_voice", "it is no voice satellite")
            await is_gone.wait()
            return
        device = await self._admitted(client, info, address)
        if device is None:
            return
        if device.standing != "approved":
            self._note_failure(address, "device_blocked", f"{device.id} is blocked")
            await self._directory.changed().wait()
            return
        self._failures.pop(address, None)
        logger.info("= esphome device %s (%s) is connected", device.id, device.name)
        await self._serve(client, device, abilities, entities, sounds_port, is_gone)
        logger.info("= esphome device %s is gone", device.id)

    def _present(self, address: EspHomeAddress) -> EspHomeAddress:
        """Returns the address with what the device announces: routers give it another one."""
        found = self._found.find(address.hardware_id) if address.hardware_id else None
        return address if found is None else replace(address, host=found.host, port=found.port)

    async def _clear_key(self, client: APIClient, address: EspHomeAddress) -> None:
        """Takes back the key that we gave to a device that was forgotten, so that other clients can
        use it."""
        with suppress(APIConnectionError, StorageError, TimeoutError):
            if await self._directory.find("esphome", address.hardware_id) is None:
                async with asyncio.timeout(CLEAR_LIMIT_S):
                    await client.noise_encryption_set_key(b"")
                logger.info("= esphome device at %s: its key was taken back", address.host)

    async def _admitted(
        self, client: APIClient, info: DeviceInfo, address: EspHomeAddress
    ) -> Device | None:
        """Returns the device as the directory knows it. That the configuration names it approves
        it, unless a person has blocked it. None: it was adopted, and forgotten meanwhile. Raises
        StorageError."""
        if address.hardware_id:
            known = await self._directory.find("esphome", address.hardware_id)
            if known is None:
                return None
        device = await self._directory.check_in(claims_of(client, info))
        return await self._approve(device.id) if device.standing == "new" else device

    async def _serve(
        self,
        client: APIClient,
        device: Device,
        abilities: SatelliteAbilities,
        entities: Sequence[EntityInfo],
        sounds_port: int,
        is_gone: asyncio.Event,
    ) -> None:
        def settings() -> SessionSettings:
            return device.profile.apply_to(self._settings.initial_settings())

        connection = EspHomeConnection(
            client,
            device,
            abilities,
            self._services,
            entities,
            settings,
            sounds_port,
            may_ask=device.id not in self._unasked,
        )
        with self._services.presence.connected(device.id, connection) as former:
            if former is not None:
                await former.close()
            with single_error(), self._services.wake_arbiter.connected(connection.wake_words):
                async with asyncio.TaskGroup() as tasks:
                    following = tasks.create_task(self._follow(connection, device))
                    serving = tasks.create_task(connection.run(), name=f"esphome-{device.id}")
                    gone = tasks.create_task(is_gone.wait())
                    await asyncio.wait((serving, gone), return_when=asyncio.FIRST_COMPLETED)
                    for task in (serving, gone, following):
                        task.cancel()
        asked_at = connection.asked_at
        is_crash = asked_at is not None and self._services.clock.now() < asked_at + CRASH_S
        if is_crash and abilities.crashes_when_asked and is_gone.is_set():
            self._unasked.add(device.id)

    async def _follow(self, connection: EspHomeConnection, device: Device) -> None:
        """Tells the connection when its device is moved to another room. Runs until cancelled."""
        while True:
            changed = self._directory.changed()
            with suppress(StorageError):  # read again after the next change
                found = await self._directory.find("esphome", device.hardware_id)
                if found is not None:
                    connection.wake_words.move(found.area)
            await changed.wait()
