"""Client for the HTTP API of a running server, as the commands that manage one use it."""

import argparse
import asyncio
import sys
from collections.abc import Coroutine, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import ClientSession, FormData

from bench.client.http import KEY_VARIABLES, Address, connect_errors, parse_address, refusal
from bench.client.realtime import CannotConnect, error_message
from core.errors import ConfigError, RequestError
from server.commands.exit_codes import ExitCode
from server.config import Config
from server.net.addresses import is_loopback, is_unspecified, url_host
from server.runtime.state_dir import read_key

KEY_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
"Statuses for which the error says that the key was refused."


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


def run_on_server(action: Coroutine[Any, Any, None]) -> ExitCode:
    """Runs an action on a server, and returns the exit code of the command. Raises EarshotError."""
    try:
        asyncio.run(action)
    except CannotConnect as error:
        print(f"earshot: {error}", file=sys.stderr)
        return ExitCode.CONNECTION_FAILED
    return ExitCode.OK


def _configured_url(config: Config) -> str:
    """Returns the address of the configured server, as seen from this machine. Raises
    ConfigError if its port is not fixed."""
    server = config.server
    if server.port == 0:
        raise ConfigError("config.server.port is 0 (any free port): name the server with --url")
    host = "127.0.0.1" if is_unspecified(server.host) else server.host
    scheme = "http" if server.tls == "off" else "https"
    return f"{scheme}://{url_host(host)}:{server.port}"


class ServerApi:
    """HTTP client for one server."""

    def __init__(self, address: Address, session: ClientSession) -> None:
        self._address, self._session = address, session

    async def request(self, method: str, path: str, body: object = None) -> bytes:
        """Sends one request with `body` as JSON, and returns the body of the answer. Raises
        CannotConnect, or RequestError with the server's own message."""
        data = None if body is None else msgspec.json.encode(body)
        return await self._request(method, path, data)

    async def upload(self, path: str, form: FormData) -> bytes:
        """Sends a form with a file by POST. Returns and raises as `request` does."""
        return await self._request("POST", path, form)

    async def _request(self, method: str, path: str, data: bytes | FormData | None) -> bytes:
        url = f"{self._address.url}{path}"
        with connect_errors(self._address):
            async with self._session.request(
                method, url, data=data, ssl=self._address.ssl()
            ) as response:
                if response.status in KEY_REFUSED:
                    raise await refusal(response)
                body_bytes = await response.read()
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise RequestError(_error_message(response.status, body_bytes))
        return body_bytes


def _error_message(status: int, body_bytes: bytes) -> str:
    try:
        body = msgspec.json.decode(body_bytes)
    except (msgspec.DecodeError, UnicodeError):
        body = None
    if isinstance(body, dict):
        return error_message(body)
    return f"the server answered {status}; is it Earshot, of this version?"
