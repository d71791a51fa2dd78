"""The STUN and TURN servers that clients get."""

import asyncio
import json
from typing import Any

import pytest

from core.http.routes import Route
from media.webrtc.ice.settings import IceServer, IceSettings
from signaling.ice_servers import IceDoor, ice_routes, links

SERVERS = (
    IceServer(("stun:a.example",)),
    IceServer(("turn:a.example", "turns:a.example"), shared_secret="north"),
    IceServer(("turn:b.example",), "me", "pass"),
)


async def show(route: Route) -> Any:
    return await route.handler(None)


def shown(settings: IceSettings) -> Any:
    (route,) = ice_routes(IceDoor(settings))
    response = asyncio.run(show(route))
    assert response.headers["Cache-Control"] == "no-store"
    return json.loads(response.body)


def test_no_servers_by_default() -> None:
    assert shown(IceSettings()) == {"iceServers": [], "ttl_s": 21_600}


def test_the_configuration_for_browsers_has_fresh_credentials() -> None:
    settings = IceSettings(SERVERS, credential_ttl_s=60, wall_s=lambda: 40.0)
    told, again = shown(settings), shown(settings)
    stun, own, shared = told["iceServers"]
    assert stun == {"urls": ["stun:a.example"]}
    assert own["urls"] == ["turn:a.example", "turns:a.example"]
    assert own["username"].startswith("100:ice_")
    assert own["credential"] not in ("", again["iceServers"][1]["credential"])
    assert shared == {"urls": ["turn:b.example"], "username": "me", "credential": "pass"}
    assert "north" not in json.dumps(told)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (SERVERS[0], ['<stun:a.example>; rel="ice-server"']),
        (
            IceServer(("stun:b.example", "turn:b.example?transport=tcp"), 'm"e', "p\\"),
            [
                '<stun:b.example>; rel="ice-server"',
                (
                    '<turn:b.example?transport=tcp>; rel="ice-server"; username="m\\"e"; '
                    'credential="p\\\\"; credential-type="password"'
                ),
            ],
        ),
    ],
)
def test_the_servers_as_link_headers(server: IceServer, expected: list[str]) -> None:
    assert links([server]) == expected
