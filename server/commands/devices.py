"""`earshot devices ACTION`: manages the devices of a running server over its HTTP API."""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from aiohttp import ClientSession

from bench.client.http import KEY_VARIABLES, Address, http_session, parse_address, reaching, refusal
from bench.client.realtime import CannotConnect, error_message
from core.errors import ConfigError, NotFound, RequestError
from devices.api.views import DeviceList, DeviceView
from server.commands.devices_table import entry_line, table
from server.commands.exit_codes import ExitCode
from server.config import Config
from server.net.addresses import is_loopback, is_unspecified, url_host
from server.runtime.state_dir import read_key

DEVICES = "/v1/devices"

KEY_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
"Statuses for which the error says that the key was refused."


def run(options: argparse.Namespace, config: Config, environ: Mapping[str, str]) -> ExitCode:
    """Runs one action and prints the result. Raises EarshotError."""
    address = address_of(options, config, environ)
    try:
        asyncio.run(_run_and_print(options, address))
    except CannotConnect as error:
        print(f"earshot: {error}", file=sys.stderr)
        return ExitCode.CONNECTION_FAILED
    return ExitCode.OK


def address_of(options: argparse.Namespace, config: Config, environ: Mapping[str, str]) -> Address:
    """Returns the server's address with the key to use. Raises ConfigError. The key of the
    configuration or of the state folder is sent only to a server on this machine, or to the
    configured one: any other server would learn it."""
    explicit_key = options.key or next(filter(None, map(environ.get, KEY_VARIABLES)), None)
    try:
        address = parse_address(options.url or _configured_url(config), explicit_key)
    except RequestError as error:
        raise ConfigError(str(error)) from error
    is_configured = not options.url
    is_on_this_machine = is_loopback(urlsplit(address.url).hostname or "")
    key = address.key
    if key is None and (is_configured or is_on_this_machine):
        key = config.server.api_key or read_key(config.paths.state_dir)
    # Our own certificate need not name 127.0.0.1, and no other program can listen on that port.
    return Address(address.url, key, options.insecure or (is_configured and is_on_this_machine))


def _configured_url(config: Config) -> str:
    """Returns the address of the configured server, as seen from this machine. Raises
    ConfigError if its port is not fixed."""
    server = config.server
    if server.port == 0:
        raise ConfigError("config.server.port is 0 (any free port): name the server with --url")
    host = "127.0.0.1" if is_unspecified(server.host) else server.host
    scheme = "http" if server.tls == "off" else "https"
    return f"{scheme}://{url_host(host)}:{server.port}"


class _DevicesApi:
    """Client for the devices API of one server."""

    def __init__(self, address: Address, session: ClientSession) -> None:
        self._address, self._session = address, session

    async def request(self, method: str, path: str, body: object = None) -> bytes:
        """Sends one request with `body` as JSON, and returns the body of the answer. Raises
        CannotConnect, or RequestError with the server's own message."""
        data = None if body is None else msgspec.json.encode(body)
        url = f"{self._address.url}{path}"
        with reaching(self._address):
            async with self._session.request(
                method, url, data=data, ssl=self._address.ssl()
            ) as response:
                if response.status in KEY_REFUSED:
                    raise await refusal(response)
                body_bytes = await response.read()
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise RequestError(_error_message(response.status, body_bytes))
        return body_bytes

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


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the fields of the device that the action sets, as the server's API takes them."""
    match options.action:
        case "rename":
            return {"name": options.name}
        case "area":
            return {"area": options.area}
        case _:
            return {"profile": dict(map(_parse_profile_field, options.field))}


def _parse_profile_field(text: str) -> tuple[str, Any]:
    """Parses a field of a profile such as `volume=60`. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{text!r}: a field of a profile is written NAME=VALUE")
    if name == "tools":
        return name, value.split(",") if value else None
    if name not in ("volume", "answer_temperature"):
        return name, value
    try:
        return name, msgspec.json.decode(value, type=float | int) if value else None
    except msgspec.DecodeError:
        raise ConfigError(f"{name}: {value!r} is not a number") from None


def _error_message(status: int, body_bytes: bytes) -> str:
    try:
        body = msgspec.json.decode(body_bytes)
    except (msgspec.DecodeError, UnicodeError):
        body = None
    if isinstance(body, dict):
        return error_message(body)
    return f"the server answered {status}; is it Earshot, of this version?"
