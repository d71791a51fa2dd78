"""The xiaozhi door: the check-in of boards over HTTP at every start, and their WebSocket."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

import msgspec
from aiohttp import hdrs
from aiohttp import web as aioweb
from multidict import CIMultiDict

from core.errors import Forbidden, NotFound, RequestError, Unauthorized
from core.http.routes import JSON, is_forwarded
from core.net.ip_addresses import is_among, peer_address
from core.ports import Clock, DeviceLocation, Metrics
from devices.fleet.directory import Device, DeviceDirectory
from devices.fleet.ota import FirmwareFolder
from devices.fleet.presence import Presence
from devices.fleet.wake_arbiter import WakeArbiter
from devices.xiaozhi.activation import PendingActivations
from devices.xiaozhi.connection import XiaozhiConnection, XiaozhiContext
from devices.xiaozhi.device_tools import DeviceToolProvider
from devices.xiaozhi.firmware import XiaozhiFirmware
from devices.xiaozhi.ota_check import (
    OtaCheckReply,
    check_in_reply,
    claims_of,
    hardware_id_of,
    identity_of,
)
from devices.xiaozhi.settings import XiaozhiSettings
from firmware_protocol.xiaozhi.framing import VERSIONS, ProtocolVersion, is_version
from firmware_protocol.xiaozhi.json_codec import MAX_TEXT_BYTES
from pipeline.session.sessions import Sessions

logger = logging.getLogger(__name__)

SOCKET_PATH = "/xiaozhi/v1/"

HEARTBEAT_S = 20.0
"Interval of pings. A board that lost its power is noticed within one and a half intervals."

CLOSE_TIMEOUT_S = 2.0
"Stock firmware does not answer a close frame, and keeps the connection until it opens the next."

PENDING = 202
"""HTTP status "not approved yet"; the device asks again in 3 s."""

BEARER = "Bearer "

QUERY_HEADERS = frozenset(("authorization", "device-id", "client-id"))
"Query parameters with which clients in browsers replace the headers of boards."


class XiaozhiDoor:
    """Handlers of the door."""

    def __init__(
        self,
        sessions: Sessions,
        directory: DeviceDirectory,
        presence: Presence,
        tools: DeviceToolProvider,
        clock: Clock,
        metrics: Metrics,
        settings: XiaozhiSettings,
        version: str,
        volume_of: Callable[[str], int | None],
        wake_arbiter: WakeArbiter,
    ) -> None:
        """version: this server's, which it reports to the devices' MCP. volume_of: see
        `XiaozhiContext`."""
        self._volume_of, self._wake_arbiter = volume_of, wake_arbiter
        self._sessions, self._directory, self._presence = sessions, directory, presence
        self._tools, self._clock, self._metrics = tools, clock, metrics
        self._settings, self._version = settings, version
        self.images = XiaozhiFirmware(
            FirmwareFolder(settings.folder), offers=settings.offers_firmware
        )
        self._activation = PendingActivations(directory)
        self._open = 0

    async def explain_address(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /xiaozhi/ota/`, for people who check whether the address is right."""
        return aioweb.Response(text="Earshot answers xiaozhi boards here.\n")

    async def check_in(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /xiaozhi/ota/`."""
        address = self._allowed_address(request)
        # A page in a browser must not be approved because of its address.
        known_at = "" if hdrs.ORIGIN in request.headers else address
        claims = claims_of(request.headers, await request.read(), known_at)
        device = await self._directory.check_in(claims)
        self._metrics.count("earshot_xiaozhi_check_ins", standing=device.standing)
        is_claim = device.standing == "new" and device.has_new_identity
        how = f"from {address} with another identity" if is_claim else device.standing
        logger.info("= xiaozhi device %s checked in: %s", device.id, how)
        if device.standing == "blocked":
            raise Forbidden("this device is blocked", code="device_blocked")
        token, is_approved = "", device.standing == "approved"
        # Clients on computers check in only once, so they need the key before the code is typed.
        if is_approved or device.pairing_code:
            token = await self._directory.issue_token(device.id, claims.identity)
        url, now = self._url(request), self._clock.wall()
        offered = None
        if is_approved:
            offered = await self.images.offer(_base(url), device.board, claims.firmware)
        answer = check_in_reply(device, claims.firmware, now, url, token, offered)
        return _readable(request, _json(answer))

    async def firmware(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `GET /xiaozhi/ota/firmware/{version}/{board}.bin`."""
        self._allowed_address(request)
        return await self.images.send(request.match_info["version"], request.match_info["board"])

    async def activate(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /xiaozhi/ota/activate`. The body is ignored: a person approves, not a
        signature."""
        self._allowed_address(request)
        device = await self._directory.find(
            "xiaozhi", hardware_id_of(request.headers), identity_of(request.headers)
        )
        if device is None:
            raise NotFound("this device has not checked in", code="device_not_found")
        if device.standing == "blocked":
            raise Forbidden("this device is blocked", code="device_blocked")
        is_approved = device.standing == "approved"
        answer = aioweb.json_response({}, status=200 if is_approved else PENDING)
        return _readable(request, answer)

    async def converse(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `GET /xiaozhi/v1/`. Raises Unauthorized, RequestError, OverloadedError before the
        upgrade."""
        waiting = await self._waiting(request)
        device = waiting or await self._authenticated(request)
        framing = _framing(request)
        ws = aioweb.WebSocketResponse(
            heartbeat=HEARTBEAT_S,
            max_msg_size=MAX_TEXT_BYTES,
            compress=False,
            timeout=CLOSE_TIMEOUT_S,
        )
        if not ws.can_prepare(request).ok:
            raise RequestError("this path speaks WebSocket", code="websocket_expected")
        if waiting is not None:
            await self._activation.serve(ws, request, waiting)
            return ws
        settings = device.profile.apply_to(self._settings.initial_settings())
        async with self._sessions.open(
            settings,
            paced_by="server",
            conversation_id=device.id,
            place=DeviceLocation(device.area, device.id),
            door="xiaozhi",
        ) as session:
            await ws.prepare(request)
            context = XiaozhiContext(
                device=device,
                settings=settings,
                dialogue=self._settings.dialogue,
                version=self._version,
                clock=self._clock,
                metrics=self._metrics,
                presence=self._presence,
                wake_arbiter=self._wake_arbiter,
                volume_of=self._volume_of,
                image_url=partial(self.images.url, _base(self._url(request)), device.board),
            )
            connection = XiaozhiConnection(ws, session, framing, context)
            with (
                self._counted(),
                self._tools.offer(device.id, connection.tools),
                self._presence.connected(device.id, connection, device.identity) as former,
                self._wake_arbiter.connected(connection),
            ):
                if former is not None:
                    await former.close()
                # again: if it was blocked meanwhile, there was no connection to close yet
                await self._authenticated(request)
                end = await connection.run()
            logger.info("= xiaozhi device %s: %s", device.id, end.reason)
        return ws

    async def _waiting(self, request: aioweb.Request) -> Device | None:
        """Returns the device if it waits for its approval, else None."""
        headers = _device_headers(request)
        identity = identity_of(headers)
        device = await self._directory.waiting_device_with_key(_token_of(headers), identity)
        if device is None or device.hardware_id != headers.get("Device-Id", "").strip().lower():
            return None
        return replace(device, identity=identity)

    async def _authenticated(self, request: aioweb.Request) -> Device:
        """Returns the approved device. Raises Unauthorized, with the same text for every reason;
        the log has the reason."""
        headers = _device_headers(request)
        token, identity = _token_of(headers), identity_of(headers)
        device = await self._directory.device_with_key(token, identity) if token else None
        if device is None or device.kind != "xiaozhi":
            logger.warning("! xiaozhi: refused a connection without a valid key")
        elif device.hardware_id != headers.get("Device-Id", "").strip().lower():
            logger.warning(
                "! xiaozhi: refused the key of %s, because it came with the Device-Id of another"
                " device",
                device.id,
            )
        else:
            return device
        raise Unauthorized(
            "the device's key is missing, wrong or revoked; an approved device gets a new key"
            " when it starts",
            code="invalid_device_token",
        )

    def _allowed_address(self, request: aioweb.Request) -> str:
        """Returns the device's address. Raises Forbidden."""
        if is_forwarded(request.headers, request.version):
            raise Forbidden("a check-in cannot come through a proxy", code="forbidden_network")
        address = peer_address(request.remote)
        if address is None or not is_among(address, self._settings.networks):
            logger.warning(
                "! xiaozhi: refused %s, because it is not in an allowed network", address
            )
            raise Forbidden(
                f"{address} is not in xiaozhi.networks of this server", code="forbidden_network"
            )
        return str(address)

    def _url(self, request: aioweb.Request) -> str:
        """Returns the URL of the WebSocket, with the host name that the board used and our port.

        Some boards leave the port out of `Host`. They cannot use an IPv6 address.
        """
        if self._settings.url:
            return self._settings.url
        host_header = urlsplit(f"//{request.host}")
        own = request.transport and request.transport.get_extra_info("sockname")
        own = own if isinstance(own, tuple) else None  # a path: another gateway passed this on
        host, port = host_header.hostname or "", host_header.port or (own[1] if own else 80)
        if not host or ":" in host:
            host = own[0] if own else host
        return f"{'wss' if request.secure else 'ws'}://{host}:{port}{SOCKET_PATH}"

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._open += 1
        self._metrics.gauge("earshot_xiaozhi_connections", self._open)
        try:
            yield
        finally:
            self._open -= 1
            self._metrics.gauge("earshot_xiaozhi_connections", self._open)


def _base(socket_url: str) -> str:
    """Returns the URL of this server's root, from that of the WebSocket."""
    return "http" + socket_url.removeprefix("ws").removesuffix(SOCKET_PATH)


def _framing(request: aioweb.Request) -> ProtocolVersion:
    """Reads the protocol version. Raises RequestError."""
    version = _device_headers(request).get("Protocol-Version", "1").strip()
    number = int(version) if version.isascii() and version.isdigit() and len(version) < 3 else 0
    if not is_version(number):
        raise RequestError(
            f"the header Protocol-Version must be one of {', '.join(map(str, VERSIONS))}",
            code="unsupported_protocol_version",
            param="Protocol-Version",
        )
    return number


def _device_headers(request: aioweb.Request) -> Mapping[str, str]:
    """Returns the headers. A browser's WebSocket cannot set them, so its page uses the query."""
    return (
        request.headers if QUERY_HEADERS.isdisjoint(request.query) else CIMultiDict(request.query)
    )


def _token_of(headers: Mapping[str, str]) -> str:
    """Returns the device's key; empty: there is none."""
    header = headers.get(hdrs.AUTHORIZATION, "")
    return header[len(BEARER) :].strip() if header.startswith(BEARER) else ""


def _readable(request: aioweb.Request, answer: aioweb.Response) -> aioweb.Response:
    """Allows a page in a browser of an allowed network to read the response."""
    if origin := request.headers.get(hdrs.ORIGIN):
        answer.headers["Access-Control-Allow-Origin"] = origin
        answer.headers["Vary"] = "Origin"
    return answer


def _json(answer: OtaCheckReply) -> aioweb.Response:
    return aioweb.Response(
        body=msgspec.json.encode(answer),
        content_type=JSON,
        headers={"Cache-Control": "no-store"},
    )
