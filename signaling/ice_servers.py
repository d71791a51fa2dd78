"""`GET /earshot/ice`: STUN and TURN servers in the form of a browser's `RTCPeerConnection`."""

from collections.abc import Iterable

import msgspec
from aiohttp import web as aioweb
from msgspec import UNSET, Struct, UnsetType

from core.conversation.ids import new_id
from core.http.routes import JSON, Route, TokenCheck
from media.webrtc.ice.settings import IceServer, IceSettings


class IceServerObject(Struct, frozen=True, omit_defaults=True):
    """An RTCIceServer."""

    urls: tuple[str, ...]
    username: str | UnsetType = UNSET
    credential: str | UnsetType = UNSET


class IceConfiguration(Struct, frozen=True):
    """An RTCConfiguration. Browsers ignore fields that they do not know."""

    iceServers: tuple[IceServerObject, ...]  # noqa: N815
    ttl_s: int
    "Lifetime of the credentials, in seconds. A relayed call that uses them ends after it."


class IceDoor:
    """HTTP handler that shows STUN and TURN servers to clients."""

    def __init__(self, settings: IceSettings) -> None:
        self._settings = settings

    async def show(self, _: aioweb.Request) -> aioweb.Response:
        """Returns the servers, with new credentials for each request."""
        servers = self._settings.minted(new_id("ice"))
        configuration = IceConfiguration(
            tuple(map(_object, servers)), self._settings.credential_ttl_s
        )
        return aioweb.Response(
            body=msgspec.json.encode(configuration),
            content_type=JSON,
            headers={"Cache-Control": "no-store"},
        )


def ice_routes(door: IceDoor, admits: TokenCheck | None = None) -> tuple[Route, ...]:
    """Returns the route. `admits`: accepts client secrets, whose calls may need these servers."""
    return (
        Route(
            "GET",
            "/earshot/ice",
            door.show,
            "List STUN and TURN servers for a call as an RTCConfiguration, with credentials for"
            " this call only.",
            "realtime",
            responses={200: IceConfiguration},
            admits=admits,
            scope="talk",
        ),
    )


def links(servers: Iterable[IceServer]) -> list[str]:
    """Returns the servers as values of `Link` headers (RFC 9725, 4.6)."""
    return [_link(url, server) for server in servers for url in server.urls]


def _link(url: str, server: IceServer) -> str:
    parts = [f"<{url}>", 'rel="ice-server"']
    if server.username is not None and not url.startswith("stun:"):
        parts += [
            f"username={_quoted(server.username)}",
            f"credential={_quoted(server.credential or '')}",
            'credential-type="password"',
        ]
    return "; ".join(parts)


def _quoted(text: str) -> str:
    """Returns a quoted-string of RFC 9110, 5.6.4."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _object(server: IceServer) -> IceServerObject:
    return IceServerObject(
        server.urls,
        UNSET if server.username is None else server.username,
        UNSET if server.credential is None else server.credential,
    )
