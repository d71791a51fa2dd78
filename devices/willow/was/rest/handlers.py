"""REST API of Willow Application Server (WAS), as WAS's own page and scripts use it.

No response holds a secret. WAS itself returned the Home Assistant token and the Wi-Fi password.
"""

import asyncio
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import TZPATH, available_timezones

import msgspec
from aiohttp import web as aioweb

from core.errors import NotFound, PayloadTooLarge, RequestError
from core.tasks import run_in_thread
from devices.fleet.directory import Device, DeviceDirectory
from devices.willow.was.device_config import (
    DEFAULTS,
    MASK,
    effective_config,
    masked,
    merged,
    validate_config,
)
from devices.willow.was.door import OTA_PATH, WasDoor
from devices.willow.was.rest.body import read_object
from devices.willow.was.settings_store import NvsSettings, read_nvs
from devices.willow.was.socket.connection import WillowConnection
from devices.willow.was.socket.notifications import MAX_REPEAT
from devices.willow.wis.params import invalid, switch_of, text_of, whole_of
from firmware_protocol.willow.decode import MAX_ID
from firmware_protocol.willow.encode import encode
from firmware_protocol.willow.messages import ConfigMessage, Identify, Notify, Restart

MAX_CHARS = 64
"Limit of a name, as everywhere in the registry."

NAMES = ("label", "name")
"Fields for the name: WAS's own, and ours."


async def named_device(directory: DeviceDirectory, mac: str) -> Device:
    """Returns the device with this MAC, connected or not. Raises NotFound."""
    device = await directory.find("willow", mac.lower())
    if device is None:
        raise NotFound(
            f"no device {mac[:64]!r} is known", code="device_not_found", param="mac_addr"
        )
    return device


def read_name_and_area(body: Mapping[str, object]) -> tuple[str | None, str | None]:
    """Returns name and area; None: it stays. Raises RequestError, naming the field."""
    given = [name for name in NAMES if name in body]
    name = _text(body, given[0]) if given else None
    area = _text(body, "area") if "area" in body else None
    if name is None and area is None:
        raise invalid("label", None, "label (or name), area or both")
    if name == "":
        raise invalid(given[0], name, f"1 to {MAX_CHARS} characters, not only spaces")
    return name, area


def _text(body: Mapping[str, object], field: str) -> str:
    found = body[field]
    if not isinstance(found, str) or len(found) > MAX_CHARS or not found.isprintable():
        raise invalid(field, found, f"at most {MAX_CHARS} printable characters")
    return " ".join(found.split())


MAX_FOOTER_BYTES = 128
"Largest number of bytes that are read at the end of a file. Every rule is shorter."


@cache
def posix_zones() -> Mapping[str, str]:
    """Returns names and rules, `Europe/Berlin` -> `CET-1CEST,M3.5.0,M10.5.0/3`.

    Empty where the machine has no database. Reads some 600 small files, once. The rule is the last
    line of a file (RFC 8536 section 3.3).
    """
    found = {name: _footer(name) for name in sorted(available_timezones())}
    return {name: rule for name, rule in found.items() if rule}


def _footer(name: str) -> str:
    for folder in TZPATH:
        file = Path(folder) / name
        if file.is_file():
            data = file.read_bytes()[-MAX_FOOTER_BYTES:]
            lines = data.rsplit(b"\n", 2)
            is_whole = data.endswith(b"\n") and len(lines) == 3
            return lines[1].decode("ascii", "ignore") if is_whole else ""
    return ""


ACTIONS = ("config", "identify", "notify", "restart", "update")
"Allowed values of `action` in `POST /api/client`."

CONFIG_TYPES = ("config", "ha_token", "ha_url", "multinet", "nvs", "tz", "was")
"Allowed values of `type` in `/api/config`."

STATUS_TYPES = ("asyncio_tasks", "connmgr", "notify_queue")
"Allowed values of `type` in `/api/status`."

MAX_TEXT_CHARS = 1000
"Limit of a notification's text; a display shows a few hundred characters."

MAX_STROBE_MS = 10_000
"Longest period of a notification's flashing light, in ms."


class WasRest:
    """HTTP handlers. Each raises RequestError for a wrong request, naming the field."""

    def __init__(self, door: WasDoor) -> None:
        self._door = door

    async def clients(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /api/client`."""
        found = sorted(
            self._door.connected_devices.all(),
            key=lambda connection: (connection.device.name, connection.hostname),
        )
        return _json([_client(connection) for connection in found])

    async def act(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /api/client?action=`."""
        action = _choice(request.query, "action", ACTIONS)
        body = await _body(request)
        match action:
            case "restart":
                self._named(body).send(Restart())
            case "identify":
                self._named(body).send(Identify())
            case "update":
                await self._update(body, f"{request.scheme}://{request.host}")
            case "notify":
                return _json({"id": await self._notify(body)})
            case _:
                await self._rename(body)
        return _json("Success")

    async def config(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /api/config?type=`. `default=true`: the defaults; `hostname=`: all settings
        that this device gets."""
        kind = _choice(request.query, "type", CONFIG_TYPES)
        store = self._door.store
        match kind:
            case "config" if switch_of(request.query, "default"):
                return _json(dict(DEFAULTS))
            case "config" if name := text_of(request.query, "hostname"):
                connection = self._find(name)
                device = connection.device
                every, own = await store.config(), await store.config(device.id)
                base, sends = connection.origin.base_url, self._door.settings.sends_secrets
                return _json(masked(effective_config(device, every, own, base, with_secrets=sends)))
            case "config":
                return _json(masked({**DEFAULTS, **await store.config()}))
            case "nvs":
                nvs = NvsSettings() if switch_of(request.query, "default") else await store.nvs()
                return _json(masked(nvs.as_json()))
            case "was":
                return _json(masked(await store.was()))
            case "ha_url":
                return aioweb.Response(text=_ha_url(await store.config()))
            case "ha_token":
                return aioweb.Response(text=MASK if "hass_token" in await store.config() else "")
            case "tz":
                return _json(await run_in_thread(posix_zones))
            case _:
                return _json({})  # multinet: commands that a device would recognise itself

    async def configure(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /api/config?type=&apply=`.

        A body with only `hostname` sends the stored settings to that device; `hostname=` in the
        query stores settings for that device only.
        """
        kind = _choice(request.query, "type", ("config", "nvs", "was"))
        apply = switch_of(request.query, "apply")
        body = await _body(request)
        if set(body) == {"hostname"} and kind != "was":
            await self._push(kind, [self._named(body)])
            return _json("Success")
        name, store = text_of(request.query, "hostname"), self._door.store
        if kind == "was":
            await store.save_was(merged(body, await store.was()))
            return _json("Success")
        if kind == "nvs":
            nvs = await store.nvs()
            await store.save_nvs(read_nvs(merged(body, nvs.as_json()), nvs, MASK))
        elif name:
            device_id = self._find(name).device.id
            await self._save(body, device_id)
        else:
            await self._save(body)
        if apply:
            await self._push(
                kind, [self._find(name)] if name else self._door.connected_devices.all()
            )
        return _json("Success")

    async def info(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /api/info`."""
        return _json({"was": {"version": self._door.settings.version}})

    async def status(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /api/status?type=`."""
        match _choice(request.query, "type", STATUS_TYPES):
            case "asyncio_tasks":
                return _json(sorted(task.get_name() for task in asyncio.all_tasks()))
            case "connmgr":
                clients = {
                    connection.hostname: _client(connection)
                    for connection in self._door.connected_devices.all()
                }
                return _json({"connected_clients": clients})
            case _:
                queues = {
                    connection.device.hardware_id: connection.notifications.status
                    for connection in self._door.connected_devices.all()
                }
                return _json({"notifications": queues})

    async def _save(self, body: Mapping[str, Any], device_id: str = "") -> None:
        """Stores settings. Raises PayloadTooLarge before that if a device could never receive
        them."""
        store = self._door.store
        values = merged(validate_config(body), await store.config(device_id))
        everywhere = await store.config() if device_id else {}
        try:
            encode(ConfigMessage({**DEFAULTS, **everywhere, **values}))
        except PayloadTooLarge as error:
            raise PayloadTooLarge(f"config: {error}", param="config") from None
        await store.save_config(values, device_id)

    async def _push(self, kind: str, connections: list[WillowConnection]) -> None:
        if kind == "nvs":
            nvs = await self._door.store.nvs()
            message = nvs.message(with_secrets=self._door.settings.sends_secrets)
            for connection in connections:
                connection.send(message)
            return
        for connection in connections:
            await connection.configure()

    async def _update(self, body: Mapping[str, object], page: str) -> None:
        """Handles action=update. page: this server's address as the list of releases names it."""
        connection = self._named(body)
        bases = (connection.origin.base_url, page)
        version = text_of(body, "version") or _own_version(text_of(body, "ota_url"), bases)
        if not await self._door.update(connection, version):
            raise NotFound(
                f"there is no firmware {version} for {connection.device.board}".replace("  ", " "),
                code="firmware_not_found",
                param="ota_url",
            )

    async def _rename(self, body: Mapping[str, object]) -> None:
        directory = self._door.directory
        name, area = read_name_and_area(body)
        if text_of(body, "hostname"):
            device = self._named(body).device
        else:
            device = await named_device(directory, text_of(body, "mac_addr"))
        await directory.edit(device.id, name=name, area=area)

    async def _notify(self, body: Mapping[str, object]) -> int:
        """Handles action=notify. Returns the notification's id."""
        data = body.get("data")
        if not isinstance(data, Mapping):
            raise invalid("data", data, "an object")
        receivers = (
            [self._named(body)] if text_of(body, "hostname") else self._door.connected_devices.all()
        )
        number = _id(data)
        if switch_of(data, "cancel"):
            if number is None:
                raise invalid("data.id", None, "the notification's id")
            for connection in receivers:
                connection.notifications.cancel(number, connection.send)
            return number
        number = number or self._door.notification_ids.new()
        messages = [
            (connection, await self._notification(connection, number, data))
            for connection in receivers
        ]
        accepted = [connection.notifications.add(message) for connection, message in messages]
        if messages and not any(accepted):
            raise RequestError("too many notifications are waiting", code="server_full")
        return number

    async def _notification(
        self, connection: WillowConnection, number: int, data: Mapping[str, object]
    ) -> Notify:
        text, url = text_of(data, "text"), text_of(data, "audio_url")
        if len(text) > MAX_TEXT_CHARS:
            raise invalid("data.text", text, f"at most {MAX_TEXT_CHARS} characters")
        if not (text or url):
            raise invalid("data", "", "text, audio_url or both")
        if url:
            await self._door.audio_urls.check(url, connection.origin.base_url)
        return Notify(
            id=number,
            text=text or None,
            audio_url=url or connection.spoken_url(text),
            repeat=whole_of(data, "repeat", range(1, MAX_REPEAT + 1)),
            volume=whole_of(data, "volume", range(101)),
            backlight=_switch(data, "backlight"),
            backlight_max=_switch(data, "backlight_max"),
            strobe_period_ms=whole_of(data, "strobe_period_ms", range(MAX_STROBE_MS + 1)),
        )

    def _named(self, body: Mapping[str, object]) -> WillowConnection:
        return self._find(text_of(body, "hostname"))

    def _find(self, name: str) -> WillowConnection:
        found = (
            self._door.connected_devices.first_match(
                lambda connection: name.lower() in connection.names
            )
            if name
            else None
        )
        if found is None:
            raise NotFound(
                f"no approved device {name[:64]!r} is connected",
                code="device_not_found",
                param="hostname",
            )
        return found


def _client(connection: WillowConnection) -> dict[str, Any]:
    device = connection.device
    return {
        "hostname": connection.hostname,
        "platform": device.board,
        "mac_addr": device.hardware_id,
        "ip": connection.address,
        "port": connection.origin.port,
        "version": connection.origin.firmware,
        "label": device.name,
        "id": device.id,
        "area": device.area,
    }


def _own_version(url: str, bases: tuple[str, ...]) -> str:
    """Returns the version in a URL of this server, which WAS's page takes from the list of
    releases.

    Other URLs are returned unchanged, and refused later.
    """
    try:
        split = urlsplit(url)
    except ValueError:
        raise invalid("ota_url", url, "a URL of the list of releases") from None
    if split.path == OTA_PATH and f"{split.scheme}://{split.netloc}" in bases:
        return (parse_qs(split.query).get("version") or [""])[0]
    return url


def _ha_url(values: Mapping[str, object]) -> str:
    scheme = "https" if values.get("hass_tls") else "http"
    host, port = values.get("hass_host", "homeassistant.local"), values.get("hass_port", 8123)
    return f"{scheme}://{host}:{port}"


def _id(data: Mapping[str, object]) -> int | None:
    """Returns the id in a notification, None if it has none. Id 1 is reserved by the firmware."""
    found = data.get("id")
    if found is not None and not (type(found) is int and 1 < found < MAX_ID):
        raise invalid("data.id", found, f"2 to {MAX_ID - 1}")
    return found


def _switch(data: Mapping[str, object], name: str) -> bool | None:
    return None if data.get(name) is None else switch_of(data, name)


def _choice(query: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    found = text_of(query, name)
    if found not in allowed:
        raise invalid(name, found, ", ".join(allowed))
    return found


async def _body(request: aioweb.Request) -> dict[str, Any]:
    return read_object(await request.read())


def _json(value: object) -> aioweb.Response:
    headers = {"Cache-Control": "no-store"}
    return aioweb.Response(
        body=msgspec.json.encode(value), content_type="application/json", headers=headers
    )
