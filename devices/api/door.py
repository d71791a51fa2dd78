"""Handlers of the HTTP API of the devices, which the page and the command line use."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Mapping

import msgspec
from aiohttp import web as aioweb
from msgspec import UNSET

from core.errors import Conflict, EarshotError, NotFound, RequestError, StorageError
from core.http.json_body import decode_json_body_or_empty
from core.http.routes import JSON
from core.http.streaming import HEADERS, HEARTBEAT_S, EventStreamSubscribers
from core.tasks import run_in_thread
from devices.api.controls import DeviceControlApi
from devices.api.event_log import DeviceEventLog, DeviceLogEntry
from devices.api.profile_check import check_profile
from devices.api.views import (
    ApproveRequest,
    AreaNotificationResult,
    DeviceActionResult,
    DeviceEdit,
    DeviceList,
    DeviceView,
    FirmwareImage,
    FirmwareList,
    FirmwareUpdateRequest,
    NotificationRequest,
    NotificationResult,
    PairRequest,
    view_of,
)
from devices.fleet.directory import Device, DeviceKind, DeviceProfile
from devices.fleet.ota import FirmwareFolder, image_for
from devices.fleet.presence import ConnectedDevice, DeviceNotification, Presence
from devices.notices.announcements import Announcements, wait_for_any
from devices.registry.registry import DeviceRegistry
from devices.registry.sanitize import MAX_NAME_CHARS, sanitize_line

logger = logging.getLogger(__name__)

SETTLE_S = 0.1
"""Wait before an update is sent, in seconds. Changes come in bursts (a device connects, then
listens), so watchers get the state after the burst."""

DATABASE_RETRY_S = 5.0
"""Seconds until the next try after the database failed. Until then a device that was just blocked
may stay connected."""

MAX_WATCHERS = 64

KINDS_WITHOUT_SPEECH: Container[DeviceKind] = frozenset({"wyoming"})
"Kinds that cannot play announcements. Wyoming only answers requests of Home Assistant."


class DeviceLog(msgspec.Struct, frozen=True):
    """The log of one device."""

    entries: list[DeviceLogEntry]
    """At most 100 entries, the oldest first. Kept in memory only, so empty after a start of the
    server."""


class DevicesDoor:
    """HTTP handlers for the devices; `devices.api.routes` says what each of them does."""

    def __init__(
        self,
        registry: DeviceRegistry,
        presence: Presence,
        event_log: DeviceEventLog,
        announcements: Announcements,
        check: Callable[[DeviceProfile], None],
        check_notice: Callable[[DeviceNotification], None],
        images: Mapping[DeviceKind, FirmwareFolder] | None = None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        """check: as `check_profile` wants it.
        check_notice: raises RequestError for a voice or a language that the server does not have.
        images: firmware folders of the kinds of devices that have one.
        heartbeat_s: interval of the heartbeats of `watch`, in seconds.
        """
        self._check, self._check_notice, self._images = check, check_notice, images or {}
        self._registry, self._presence, self._event_log = registry, presence, event_log
        self._announcements, self._heartbeat_s = announcements, heartbeat_s
        self.controls = DeviceControlApi(registry, presence)
        "Handler of the settings that devices have themselves."
        self._watchers = EventStreamSubscribers("the devices", MAX_WATCHERS, heartbeat_s)

    async def run(self) -> None:
        """Closes the connections of devices that may no longer be served. Runs until cancelled.

        It reads the decisions from the database, so a decision on another server counts, too.
        """
        while True:
            changed, again_s = self._registry.changed(), None
            try:
                await self._disconnect_refused()
            except StorageError:  # the database has logged it
                again_s = DATABASE_RETRY_S
            await wait_for_any(changed, timeout_s=again_s)

    async def list_all(self, _: aioweb.Request) -> aioweb.Response:
        return _json(await self._device_list())

    async def show(self, request: aioweb.Request) -> aioweb.Response:
        return _json(self._view(await self._device(request)))

    async def log(self, request: aioweb.Request) -> aioweb.Response:
        device = await self._device(request)
        return _json(DeviceLog([*self._event_log.entries_of(device.id)]))

    async def pair(self, request: aioweb.Request) -> aioweb.Response:
        body = decode_json_body_or_empty(await request.read(), PairRequest)
        return await self._approved(self._registry.pair(body.code))

    async def approve(self, request: aioweb.Request) -> aioweb.Response:
        body = decode_json_body_or_empty(await request.read(), ApproveRequest)
        return await self._approved(self._registry.approve(_id_of(request), body.code))

    async def block(self, request: aioweb.Request) -> aioweb.Response:
        device = await self._registry.block(_id_of(request))
        await self._disconnect(device.id)
        return self._report_decision(device, "blocked")

    async def edit(self, request: aioweb.Request) -> aioweb.Response:
        body = decode_json_body_or_empty(await request.read(), DeviceEdit)
        if body.name and not sanitize_line(body.name):
            raise RequestError(
                f"name: 1 to {MAX_NAME_CHARS} characters, not only spaces",
                code="invalid_value",
                param="name",
            )
        if body.profile is not UNSET:
            before = await self._device(request)
            check_profile(body.profile.apply_to(before.profile), self._check)
        device = await self._registry.edit(
            _id_of(request),
            name=None if body.name is UNSET else sanitize_line(body.name),
            area=None if body.area is UNSET else sanitize_line(body.area),
            profile=None if body.profile is UNSET else body.profile.apply_to,
        )
        return _json(self._view(device))

    async def forget(self, request: aioweb.Request) -> aioweb.Response:
        device_id = _id_of(request)
        await self._registry.forget(device_id)
        await self._disconnect(device_id)
        self._event_log.forget(device_id)
        logger.info("= device %s forgotten", device_id)
        return aioweb.Response(status=204)

    async def notify(self, request: aioweb.Request) -> aioweb.Response:
        notice = await self._notice(request)
        device = await self._device(request)
        if device.kind in KINDS_WITHOUT_SPEECH:
            raise Conflict(f"{device.name} cannot speak notifications", code="not_supported")
        if device.standing != "approved":
            raise Conflict(
                f"{device.name} is not approved; notifications are only for approved devices",
                code="device_not_approved",
            )
        return _json(NotificationResult(await self._announcements.to_device(device, notice)))

    async def notify_area(self, request: aioweb.Request) -> aioweb.Response:
        notice, area = await self._notice(request), request.match_info["area"]
        if not any(
            device.kind not in KINDS_WITHOUT_SPEECH for device in await self._registry.in_area(area)
        ):
            known = {device.area for device in await self._registry.all_devices() if device.area}
            hint = f"devices are in: {', '.join(sorted(known))}" if known else "none has an area"
            raise NotFound(
                f"there is no approved device that can speak in {sanitize_line(area)!r}; {hint}",
                code="area_not_found",
            )
        return _json(AreaNotificationResult([*await self._announcements.to_area(area, notice)]))

    async def restart(self, request: aioweb.Request) -> aioweb.Response:
        device, live = await self._connected_device(request)
        return await _start_action(live.restart(), device, "be restarted")

    async def update(self, request: aioweb.Request) -> aioweb.Response:
        body = decode_json_body_or_empty(await request.read(), FirmwareUpdateRequest)
        device, live = await self._connected_device(request)
        folder = self._images.get(device.kind)
        if folder and await image_for(folder, device.board, body.firmware) is None:
            raise NotFound(
                f"there is no firmware {body.firmware} for {device.name}; put it into"
                f" {folder.place(device.board)}".replace("  ", " "),
                code="firmware_not_found",
                param="firmware",
            )
        return await _start_action(live.update(body.firmware), device, "be given that firmware")

    async def firmware(self, request: aioweb.Request) -> aioweb.Response:
        device = await self._device(request)
        folder = self._images.get(device.kind)
        if folder is None:
            return _json(FirmwareList([], ""))
        found = await run_in_thread(folder.for_board, device.board)
        images = [FirmwareImage(image.version, image.size_bytes, image.sha256) for image in found]
        return _json(FirmwareList(images, folder.place(device.board)))

    async def watch(self, request: aioweb.Request) -> aioweb.StreamResponse:
        response = aioweb.StreamResponse(headers=HEADERS)
        return await self._watchers.show(request, response, self._changes())

    async def _changes(self) -> AsyncGenerator[bytes, None]:
        """Yields server-sent events: the list of all devices, and the list again after each
        change."""
        shown = b""
        while True:
            sources = (self._registry, self._presence, self._announcements)
            changed = [source.changed() for source in sources]
            now = msgspec.json.encode(await self._device_list())
            if now != shown:
                yield b"event: devices\ndata: %b\n\n" % now
            shown = now
            if await wait_for_any(*changed, timeout_s=self._heartbeat_s):
                await asyncio.sleep(SETTLE_S)

    async def _device_list(self) -> DeviceList:
        return DeviceList([self._view(device) for device in await self._registry.all_devices()])

    def _view(self, device: Device) -> DeviceView:
        waiting = self._announcements.waiting_by_device().get(device.id, 0)
        waiting += self._announcements.waiting_in(device.area) if device.area else 0
        return view_of(device, self._presence.find(device.id), waiting)

    async def _approved(self, decision: Awaitable[Device]) -> aioweb.Response:
        try:
            return self._report_decision(await decision, "approved")
        except EarshotError as error:  # never log the code: it may belong to another device
            logger.warning("! devices: an approval was refused: %s", error.code)
            raise

    def _report_decision(self, device: Device, how: str) -> aioweb.Response:
        logger.info("= device %s %s", device.id, how)
        return _json(self._view(device))

    async def _device(self, request: aioweb.Request) -> Device:
        return await self._registry.by_id(_id_of(request))

    async def _notice(self, request: aioweb.Request) -> DeviceNotification:
        """Reads an announcement. Raises RequestError."""
        body = decode_json_body_or_empty(await request.read(), NotificationRequest)
        notice = DeviceNotification(**msgspec.structs.asdict(body))
        self._check_notice(notice)
        return notice

    async def _connected_device(self, request: aioweb.Request) -> tuple[Device, ConnectedDevice]:
        """Returns the device and its connection. Raises NotFound, or Conflict device_away."""
        device = await self._device(request)
        live = self._presence.find(device.id)
        if live is None:
            raise Conflict(f"{device.name} is not connected now", code="device_away")
        return device, live

    async def _disconnect_refused(self) -> None:
        """Closes connections and drops announcements of devices that are not approved with this
        identity."""
        connected, waited_for = (
            self._presence.connections(),
            self._announcements.waiting_by_device(),
        )
        if not connected and not waited_for:
            return
        known = {device.id: device for device in await self._registry.all_devices()}
        for device_id in {*connected, *waited_for}:
            device = known.get(device_id)
            live, identity = connected.get(device_id, (None, b""))
            is_approved = device is not None and device.standing == "approved"
            if not is_approved:
                self._announcements.forget(device_id)
            is_same = device is not None and identity == device.identity
            # A device that connected meanwhile was admitted by the present state of the directory.
            if live and not (is_approved and is_same) and self._presence.find(device_id) is live:
                await live.close()

    async def _disconnect(self, device_id: str) -> None:
        self._announcements.forget(device_id)
        if live := self._presence.find(device_id):
            await live.close()


def _id_of(request: aioweb.Request) -> str:
    return str(request.match_info["device_id"])


async def _start_action(
    action: Awaitable[bool], device: Device, action_name: str
) -> aioweb.Response:
    """Answers that the action was started. Raises Conflict not_supported if it is not possible."""
    if not await action:
        why = f"{device.name} ({device.kind}) cannot {action_name} from here, or not now"
        raise Conflict(why, code="not_supported")
    return _json(DeviceActionResult(device.id))


def _json(body: object) -> aioweb.Response:
    return aioweb.Response(
        body=msgspec.json.encode(body), content_type=JSON, headers={"Cache-Control": "no-store"}
    )
