"""Door of the application server: `/ws` for devices, and what its REST handlers share."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote

from aiohttp import web as aioweb

from core.errors import OverloadedError, RequestError, StorageError
from core.http.routes import is_forwarded
from core.net.ip_addresses import is_among, peer_address
from core.ports import Clock, Metrics, WorkGuard
from devices.fleet.directory import DeviceDirectory, DeviceSettingsStore
from devices.fleet.ota import FirmwareFolder, image_for
from devices.fleet.presence import Presence
from devices.fleet.wake_arbiter import WakeArbiter
from devices.notices.notification_urls import AudioUrlPolicy
from devices.willow.was.connected_devices import WillowDevices
from devices.willow.was.settings import WasSettings
from devices.willow.was.settings_store import WillowSettingsStore
from devices.willow.was.socket.commands import DeviceCommands
from devices.willow.was.socket.connection import SocketOrigin, WillowConnection
from devices.willow.was.socket.notifications import NotificationIds
from devices.willow.was.socket.services import RefusalLog, WasServices
from devices.willow.was.socket.session import DeviceSession
from devices.willow.was.socket.wake import WillowWakeWords
from firmware_protocol.willow.decode import MAX_MESSAGE_BYTES
from firmware_protocol.willow.messages import OtaStart
from pipeline.session.one_shot import OneShotResponses

logger = logging.getLogger(__name__)

HEARTBEAT_S = 20.0
"Interval of pings. A device that lost its power is noticed within one and a half intervals."

CLOSE_TIMEOUT_S = 2.0
"Longest wait for a device to answer a close frame."

MAX_OPEN = 256
"Limit of sockets, including devices that wait for approval."

RETRY_AFTER_S = 5
"Seconds after which a refused device should try again."

OTA_PATH = "/api/ota"
"Path at which devices fetch firmware."

USER_AGENT = "Willow/"
"Beginning of the firmware's User-Agent; its version follows."

MAX_VERSION_CHARS = 64
"Characters of a claimed version that are kept."


class WasDoor:
    """The application server. `run` must be running while devices are connected."""

    def __init__(
        self,
        directory: DeviceDirectory,
        presence: Presence,
        settings_store: DeviceSettingsStore,
        one_shot_responses: OneShotResponses,
        clock: Clock,
        metrics: Metrics,
        guard: WorkGuard,
        settings: WasSettings,
        wake_arbiter: WakeArbiter,
    ) -> None:
        self.settings, self.directory = settings, directory
        self.store = WillowSettingsStore(settings_store)
        self.connected_devices = WillowDevices(
            clock, trusts_this_machine=settings.trusts_this_machine
        )
        self.firmware = FirmwareFolder(settings.folder / "firmware")
        self.assets = settings.folder / "assets"
        self.audio_urls = AudioUrlPolicy(settings.audio_hosts)
        self.notification_ids = NotificationIds(clock)
        self.wake_words = WillowWakeWords(wake_arbiter, self.connected_devices, clock)
        self.commands = DeviceCommands(
            one_shot_responses, self.connected_devices, clock, guard, settings.default_settings
        )
        self._metrics = metrics
        self._refusal_log = RefusalLog()
        self._open_count = 0
        self._services = WasServices(
            directory=directory,
            presence=presence,
            store=self.store,
            connected_devices=self.connected_devices,
            wake_words=self.wake_words,
            commands=self.commands,
            one_shot_responses=one_shot_responses,
            notification_ids=self.notification_ids,
            audio_urls=self.audio_urls,
            clock=clock,
            metrics=metrics,
            update=self.update,
            sends_secrets=settings.sends_secrets,
        )

    async def run(self) -> None:
        """Runs the commands and the checks of departed devices until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.commands.run(), name="willow-commands")
            tasks.create_task(self._forget_refused(), name="willow-refused")

    async def _forget_refused(self) -> None:
        """Removes the addresses of devices that were blocked or deleted after they disconnected.

        Sockets of connected devices check this themselves.
        """
        while True:
            changed = self._services.directory.changed()
            for hardware_id in self.connected_devices.departed_ids:
                with suppress(StorageError):  # tried again at the next change
                    device = await self._services.directory.find("willow", hardware_id)
                    if device is None or device.standing != "approved":
                        self.connected_devices.forget(hardware_id)
            await changed.wait()

    async def serve(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `GET /ws`. Raises RequestError and OverloadedError before the upgrade.

        After the upgrade an error ends the socket with a close code.
        """
        ws = aioweb.WebSocketResponse(
            heartbeat=HEARTBEAT_S,
            max_msg_size=MAX_MESSAGE_BYTES,
            compress=False,
            timeout=CLOSE_TIMEOUT_S,
        )
        if not ws.can_prepare(request).ok:
            raise RequestError("this path speaks WebSocket", code="websocket_expected")
        with self._open_socket():
            await ws.prepare(request)
            await DeviceSession(ws, socket_origin(request), self._services, self._refusal_log).run()
            await ws.close()
        return ws

    def admits(self, peer: str | None) -> bool:
        """Returns True if a device at this address may connect without the key."""
        address = peer_address(peer)
        if address is not None and is_among(address, self.settings.networks):
            return True
        if address is not None and self._refusal_log.is_new(str(address), "forbidden"):
            logger.warning("! willow: refused %s, because it is not in an allowed network", address)
        return False

    async def update(self, connection: WillowConnection, firmware: str) -> bool:
        """Makes a device fetch firmware. firmware: a version, or empty for the newest.

        Returns False if there is none. Raises RequestError for a URL.
        """
        board, base = connection.device.board, connection.origin.base_url
        found = await image_for(self.firmware, board, firmware, "ota_url")
        if found is None:
            return False
        query = f"version={quote(found.version, safe='')}&platform={quote(board, safe='')}"
        connection.send(OtaStart(f"{base}{OTA_PATH}?{query}"))
        return True

    @contextmanager
    def _open_socket(self) -> Iterator[None]:
        """Counts an open socket while the `with` block runs. Raises OverloadedError."""
        if self._open_count >= MAX_OPEN:
            raise OverloadedError(
                f"{MAX_OPEN} sockets are open, the limit", retry_after_s=RETRY_AFTER_S
            )
        self._open_count += 1
        self._metrics.gauge("earshot_willow_connections", self._open_count)
        try:
            yield
        finally:
            self._open_count -= 1
            self._metrics.gauge("earshot_willow_connections", self._open_count)


def socket_origin(request: aioweb.Request) -> SocketOrigin:
    """Returns the facts about the socket that a request came over."""
    is_direct = not is_forwarded(request.headers, request.version)
    address = peer_address(request.remote) if is_direct else None
    peer = request.transport.get_extra_info("peername") if request.transport else None
    user_agent = request.headers.get("User-Agent", "")
    version = user_agent.removeprefix(USER_AGENT) if user_agent.startswith(USER_AGENT) else ""
    return SocketOrigin(
        address=str(address or ""),
        port=int(peer[1]) if peer else 0,
        base_url=f"{request.scheme}://{request.host}",
        firmware=version[:MAX_VERSION_CHARS] if version.isprintable() else "",
    )
