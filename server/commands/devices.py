"""`earshot devices ACTION`: manages the devices of a running server over its HTTP API."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from bench.client.http import Address, http_session
from core.errors import ConfigError, NotFound
from devices.api.views import DeviceList, DeviceView
from server.commands.columns import align_columns
from server.commands.exit_codes import ExitCode
from server.commands.profile_values import profile_value
from server.commands.server_api import ServerApi, address_of, run_on_server
from server.config import Config

HEADINGS = ("NAME", "KIND", "AREA", "STATE", "LAST SEEN", "ID")


def table(devices: Sequence[DeviceView]) -> str:
    """Formats devices as a table with one line each."""
    if not devices:
        return "no device has connected yet"
    return "\n".join(align_columns([HEADINGS, *map(_row, devices)]))


def entry_line(entry: Mapping[str, Any]) -> str:
    """Formats one entry of a device's log: time, event, and the error code or the times of the
    turn in ms."""
    timing = entry.get("timing") or {}
    marks = sorted(timing.items(), key=lambda mark: mark[1])
    details = entry.get("code") or ", ".join(f"{name} {ms:.0f} ms" for name, ms in marks)
    return f"{entry['at']}  {entry['what']:<12}  {details}".rstrip()


def _row(device: DeviceView) -> tuple[str, ...]:
    last_seen = f"{device.last_seen:%Y-%m-%d %H:%M} UTC" if device.last_seen else "-"
    area = device.area or "-"
    return device.name, device.kind, area, _state(device), last_seen, device.id


def _state(device: DeviceView) -> str:
    match device.standing:
        case "new":
            return "waits for approval" + (f" ({device.pairing_code})" * bool(device.pairing_code))
        case "blocked":
            return "blocked"
        case _:
            waiting = f", notices waiting: {device.waiting}" if device.waiting else ""
            claim = f", new identity waits ({device.pairing_code})" * device.has_new_identity
            return f"{device.doing or 'away'}{waiting}{claim}"


DEVICES = "/v1/devices"


def run(options: argparse.Namespace, config: Config, environ: Mapping[str, str]) -> ExitCode:
    """Runs one action and prints the result. Raises EarshotError."""
    address = address_of(options, config, environ)
    return run_on_server(_run_and_print(options, address))


class _DevicesApi(ServerApi):
    """Client for the devices API of one server."""

    async def find(self, identifier: str) -> DeviceView:
        """Finds a device by id, name or hardware id. Raises NotFound."""
        devices = await self.devices()
        matches = [device for device in devices if identifier == device.id] or [
            device
            for device in devices
            if identifier.casefold() in (device.name.casefold(), device.hardware_id.casefold())
        ]
        if not matches:
            raise NotFound(f"no device has the id, name or hardware id {identifier!r}")
        if len(matches) > 1:
            ids = ", ".join(device.id for device in matches)
            raise NotFound(f"{len(matches)} devices have the name {identifier!r}; use an id: {ids}")
        return matches[0]

    async def devices(self) -> Sequence[DeviceView]:
        """Returns all devices that the server knows."""
        body_bytes = await self.request("GET", DEVICES)
        return msgspec.json.decode(body_bytes, type=DeviceList).devices


async def _run_and_print(options: argparse.Namespace, address: Address) -> None:
    async with http_session(address) as session:
        text, body_bytes = await _run_action(options, _DevicesApi(address, session))
    print(body_bytes.decode() if options.json else text)


async def _run_action(options: argparse.Namespace, server: _DevicesApi) -> tuple[str, bytes]:
    """Performs the action; returns the text for people and the server's JSON answer."""
    match options.action:
        case "list":
            body_bytes = await server.request("GET", DEVICES)
            return table(msgspec.json.decode(body_bytes, type=DeviceList).devices), body_bytes
        case "pair":
            body_bytes = await server.request("POST", f"{DEVICES}/pair", {"code": options.code})
            device = msgspec.json.decode(body_bytes, type=DeviceView)
            return f"approved: {device.name} ({device.id})", body_bytes
        case "notify":
            return await _notify(options, server)
    device = await server.find(options.device)
    path = f"{DEVICES}/{device.id}"
    match options.action:
        case "approve":
            body_bytes = await server.request(
                "POST", f"{path}/approve", {"code": options.code or ""}
            )
            return f"approved: {device.name}", body_bytes
        case "block" | "restart":
            body_bytes = await server.request("POST", f"{path}/{options.action}")
            outcome = "blocked" if options.action == "block" else "restarting"
            return f"{outcome}: {device.name}", body_bytes
        case "forget":
            return f"forgotten: {device.name}", await server.request("DELETE", path) or b"{}"
        case "ota":
            wanted_firmware = {"firmware": options.firmware or ""}
            body_bytes = await server.request("POST", f"{path}/update", wanted_firmware)
            return f"updating: {device.name}", body_bytes
        case "logs":
            body_bytes = await server.request("GET", f"{path}/log")
            entries = msgspec.json.decode(body_bytes)["entries"]
            lines = "\n".join(map(entry_line, entries))
            return lines or "no events since the server began", body_bytes
        case _:
            body_bytes = await server.request("POST", path, _changes(options))
            return table([msgspec.json.decode(body_bytes, type=DeviceView)]), body_bytes


async def _notify(options: argparse.Namespace, server: _DevicesApi) -> tuple[str, bytes]:
    """Speaks a text on one device or in one area. `options.words`: the device, unless an area is
    given, and the text."""
    *devices, text = options.words
    if len(devices) != (options.area is None):
        raise ConfigError("use `notify DEVICE TEXT` or `notify --area AREA TEXT`")
    body = {"text": text}
    if options.area is not None:
        path = f"/v1/areas/{quote(options.area, safe='')}/notify"
        body_bytes = await server.request("POST", path, body)
        count = len(msgspec.json.decode(body_bytes)["devices"])
        stored = "it waits for the first device that connects"
        noun = "device" if count == 1 else "devices"
        return f"spoken on {count} {noun}" if count else stored, body_bytes
    device = await server.find(devices[0])
    body_bytes = await server.request("POST", f"{DEVICES}/{device.id}/notify", body)
    is_spoken = msgspec.json.decode(body_bytes)["is_heard"]
    return "spoken" if is_spoken else f"it waits until {device.name} connects", body_bytes


def _changes(options: argparse.Namespace) -> dict[str, object]:
    """Returns the fields of the device that the action sets, as the server's API takes them."""
    match options.action:
        case "rename":
            return {"name": options.name}
        case "area":
            return {"area": options.area}
        case _:
            return {"profile": dict(map(_parse_profile_field, options.field))}


def _parse_profile_field(text: str) -> tuple[str, object]:
    """Parses a field of a profile such as `volume=60`. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{text!r}: a field of a profile is written NAME=VALUE")
    return name, profile_value(name, value)
