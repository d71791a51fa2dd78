"""Runs `earshot keys ACTION` over the HTTP API of a running server."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec

from bench.client.http import Address, http_session
from core.errors import ConfigError
from server.commands.columns import align_columns
from server.commands.exit_codes import ExitCode
from server.commands.keys.arguments import PROFILE_OPTIONS
from server.commands.profile_values import profile_value
from server.commands.server_api import ServerApi, address_of, run_on_server
from server.config import Config
from server.http.named_key_views import NamedKeyList, NamedKeyView, NewNamedKey

PATH = "/v1/keys"

HEADS = ("NAME", "SCOPES", "SESSIONS", "REQUESTS/MIN", "LAST USE")


def run(options: argparse.Namespace, config: Config, environ: Mapping[str, str]) -> ExitCode:
    """Runs one action and prints the result. Raises EarshotError."""
    address = address_of(options, config, environ)
    return run_on_server(_main(options, address))


def table(keys: Sequence[NamedKeyView]) -> str:
    """Formats keys as a table with one line each."""
    if not keys:
        return "there are no named keys"
    return "\n".join(align_columns([HEADS, *map(_row, keys)]))


async def _main(options: argparse.Namespace, address: Address) -> None:
    async with http_session(address) as session:
        text, body_bytes = await _run_action(options, ServerApi(address, session))
    print(body_bytes.decode() if options.json else text)


async def _run_action(options: argparse.Namespace, server: ServerApi) -> tuple[str, bytes]:
    """Performs the action; returns the text for people and the server's JSON answer."""
    match options.action:
        case "add":
            body = {
                "name": options.name,
                "scopes": [scope.strip() for scope in options.scopes.split(",") if scope.strip()],
                "max_sessions": options.sessions,
                "requests_per_minute": options.requests,
                "profile": _profile(options),
            }
            body_bytes = await server.request("POST", PATH, body)
            made = msgspec.json.decode(body_bytes, type=NewNamedKey)
            print("the new key is shown only this once:", file=sys.stderr)
            return made.key, body_bytes
        case "set":
            changes = {"profile": _profile(options)}
            if not changes["profile"]:
                known = ", ".join(f"--{name.replace('_', '-')}" for name, _, _ in PROFILE_OPTIONS)
                raise ConfigError(f"name at least one of {known}")
            path = f"{PATH}/{quote(options.name, safe='')}"
            body_bytes = await server.request("POST", path, changes)
            return f"changed: {options.name}", body_bytes
        case "revoke":
            body_bytes = await server.request("DELETE", f"{PATH}/{quote(options.name, safe='')}")
            return f"revoked: {options.name}", body_bytes or b"{}"
        case _:
            body_bytes = await server.request("GET", PATH)
            return table(msgspec.json.decode(body_bytes, type=NamedKeyList).keys), body_bytes


def _profile(options: argparse.Namespace) -> dict[str, object]:
    """Returns the settings of the key that the options give. Raises ConfigError."""
    given = {name: getattr(options, name) for name, _, _ in PROFILE_OPTIONS}
    return {name: profile_value(name, text) for name, text in given.items() if text is not None}


def _row(key: NamedKeyView) -> tuple[str, ...]:
    limit = f"{key.sessions} of {key.max_sessions}" if key.max_sessions else str(key.sessions)
    used = f"{key.last_used:%Y-%m-%d %H:%M} UTC" if key.last_used else "never"
    return key.name, ", ".join(key.scopes), limit, str(key.requests_per_minute or "-"), used
