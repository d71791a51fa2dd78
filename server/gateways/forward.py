"""Passes requests and WebSockets on to the gateway that answers them, over sockets in the state
folder. Doors know nothing of it.

A request that was passed on carries one header more, `Earshot-Gateway`, with the client's address
and a secret that only the gateways of this server know. The receiving gateway takes the header away
and shows its doors the client's address.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hmac import compare_digest
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiohttp import hdrs
from aiohttp import web as aioweb
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from core.access.named_key import NamedKey
from core.errors import Forbidden, OverloadedError, RequestError
from core.http.client_connection import while_connected
from core.tasks import single_error
from server.gateways.channel import GatewayRow
from server.gateways.routing import Fleet, RoutedRequest
from server.http.access import caller_of
from server.http.edge import PASSED_ON, REQUEST_ID, error_response, send_continue

ENVELOPE = "Earshot-Gateway"
"Header of a request between gateways: secret, hops, scheme and address of the client."

MAX_HOPS = 2
"""Most times that a request is passed on. The second is for a gateway that began to retire while
the request was on its way."""

CONNECT_TIMEOUT_S = 2.0
"Limit for connecting to another gateway, in seconds. It takes less than 1 ms if that is alive."

HEARTBEAT_S = 20.0
"""Interval of pings to the client of a WebSocket that is passed on, in seconds. The pings of the
door end at this gateway."""

MAX_MESSAGE_BYTES = 16 * 2**20
"Largest WebSocket message that is passed on. The limits of all doors are smaller."

SECRET_PREFIX = "ek_"  # noqa: S105 - the beginning of client secrets

HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        ENVELOPE.lower(),
    )
)
"Headers, in lower case, that belong to one connection and are not passed on (RFC 9110, 7.6.1)."

OF_WEBSOCKET = frozenset(
    ("sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions")
) | {"sec-websocket-protocol"}
"Headers, in lower case, with which each connection agrees on its own WebSocket."


@dataclass(frozen=True, slots=True)
class Envelope:
    """Facts about a request that the gateway which passes it on adds to it, in one header."""

    hops: int
    "Number of times that the request was passed on."
    scheme: str
    remote: str
    "Address of the client."

    def header(self, token: str) -> str:
        """Returns the header for a request to a gateway that knows `token`."""
        return f"{token} {self.hops} {self.scheme} {self.remote}"

    @classmethod
    def read(cls, header: str | None, token: str) -> "Envelope | None":
        """Returns what a gateway sent; None if the header is missing or not from one of ours."""
        parts = (header or "").split(" ")
        if len(parts) != 4 or not compare_digest(parts[0].encode(), token.encode()):
            return None
        return cls(int(parts[1]), parts[2], parts[3])


FROM_GATEWAY = aioweb.RequestKey("from_gateway", Envelope)
"Set on a request that another gateway has passed on."


def restoring_factory(
    factory: Callable[..., aioweb.BaseRequest], token: str
) -> Callable[..., aioweb.BaseRequest]:
    """Wraps the request factory of the socket for other gateways: the request looks as if its
    client had connected here."""

    def make(message: Any, payload: Any, *arguments: Any) -> aioweb.BaseRequest:
        envelope = Envelope.read(message.headers.get(ENVELOPE), token)
        if envelope is None:
            return factory(message, payload, *arguments)
        headers = CIMultiDict(message.headers)
        headers.popall(ENVELOPE)
        message = message._replace(headers=CIMultiDictProxy(headers))
        request = factory(message, payload, *arguments)
        request = request.clone(scheme=envelope.scheme, remote=envelope.remote)
        request[FROM_GATEWAY] = envelope
        return request

    return make


@aioweb.middleware
async def only_gateways(request: aioweb.Request, handler: Handler) -> aioweb.StreamResponse:
    """Refuses a request on the socket for other gateways that none of them has sent."""
    if FROM_GATEWAY not in request:
        raise Forbidden("only gateways of this server may connect here", code="forbidden_address")
    return await handler(request)


class Forwarder:
    """Passes requests on to other gateways. An asynchronous context: it closes its connections."""

    def __init__(
        self,
        fleet: Fleet,
        folder: Path,
        token: str,
        *,
        named_key: Callable[[str], NamedKey | None],
        other_doors: frozenset[str],
    ) -> None:
        """`folder`: of the sockets. `named_key`: finds a valid named key. `other_doors`: paths of
        doors of other packages."""
        self._fleet, self._folder, self._token = fleet, folder, token
        self._named_key = named_key
        self._other_doors = other_doors
        self._clients: dict[int, aiohttp.ClientSession] = {}
        self.open_websockets = 0
        "Number of WebSockets that pass through here now."

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.close()

    def middleware(self) -> Middleware:
        """Returns the middleware that passes on what another gateway answers."""

        @aioweb.middleware
        async def handle(request: aioweb.Request, handler: Handler) -> aioweb.StreamResponse:
            came = request.get(FROM_GATEWAY)
            if came is not None and came.hops >= MAX_HOPS:
                return await handler(request)
            facts = self._facts(request)
            try:
                while (target := self._fleet.destination(facts)) is not None:
                    request[PASSED_ON] = True
                    hops = came.hops + 1 if came is not None else 1
                    envelope = Envelope(hops, request.scheme, request.remote or "")
                    try:
                        if request.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
                            return await self._pass_websocket(request, target, envelope)
                        return await self._pass_request(request, target, envelope)
                    except aiohttp.ClientConnectorError:  # it was killed just now: nothing was sent
                        self._fleet.lose(target)
            except (aiohttp.ClientConnectionError, TimeoutError) as error:
                raise OverloadedError(
                    "the gateway that answers this has just ended; try again",
                    retry_after_s=1,
                    code="gateway_restarting",
                ) from error
            request.pop(PASSED_ON, None)
            return await handler(request)

        return handle

    async def metrics_of_others(self, request: aioweb.Request) -> Mapping[int, str]:
        """Returns the metrics of the other gateways by their number. One that does not answer is
        left out."""
        others = [row for row in self._fleet.gateways if row.number != self._fleet.own_number]
        envelope = Envelope(MAX_HOPS, request.scheme, request.remote or "")

        async def fetch(row: GatewayRow) -> str | None:
            with suppress(aiohttp.ClientError, TimeoutError):
                async with (
                    asyncio.timeout(CONNECT_TIMEOUT_S),
                    self._client(row).get(
                        _url(request), headers=self._headers(request, envelope)
                    ) as answer,
                ):
                    if answer.status == HTTPStatus.OK:
                        return await answer.text()
            return None

        texts = await asyncio.gather(*map(fetch, others))
        return {row.number: text for row, text in zip(others, texts, strict=True) if text}

    def _facts(self, request: aioweb.Request) -> RoutedRequest:
        token = caller_of(request).token or ""
        key = self._named_key(token)
        resource = request.match_info.route.resource
        return RoutedRequest(
            path=request.path,
            call_id=request.query.get("call_id", ""),
            conversation_id=request.query.get("conversation_id", ""),
            secret=token if token.startswith(SECRET_PREFIX) else "",
            rated_key_id=key.id if key is not None and key.requests_per_minute else "",
            is_other_doors=resource is not None and resource.canonical in self._other_doors,
        )

    def _client(self, target: GatewayRow) -> aiohttp.ClientSession:
        """Returns the client of a gateway. Those of ended gateways hold no connection."""
        if target.number not in self._clients:
            self._clients[target.number] = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(socket_path(self._folder, target.number), limit=0),
                timeout=aiohttp.ClientTimeout(None, sock_connect=CONNECT_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=(
                    hdrs.USER_AGENT,
                    hdrs.ACCEPT,
                    hdrs.ACCEPT_ENCODING,
                    hdrs.CONTENT_TYPE,
                ),
            )
        return self._clients[target.number]

    def _headers(self, request: aioweb.Request, envelope: Envelope) -> CIMultiDict[str]:
        headers = _end_to_end(request.headers)
        headers.popall(hdrs.EXPECT, None)  # `expect100` sets it
        headers["X-Request-ID"] = request[REQUEST_ID]  # both log the same id
        headers[ENVELOPE] = envelope.header(self._token)
        return headers

    async def _pass_request(
        self, request: aioweb.Request, target: GatewayRow, envelope: Envelope
    ) -> aioweb.StreamResponse:
        async def send() -> aiohttp.ClientResponse:
            return await self._client(target).request(
                request.method,
                _url(request),
                headers=self._headers(request, envelope),
                data=_body(request) if request.body_exists else None,
                allow_redirects=False,
                expect100=request.body_exists and hdrs.EXPECT in request.headers,
            )

        with single_error():
            answer = await while_connected(request, send())
        try:
            response = aioweb.StreamResponse(
                status=answer.status, reason=answer.reason, headers=_end_to_end(answer.headers)
            )
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
        finally:
            # An answer that was not read to its end holds its connection.
            answer.close()
        return response

    async def _pass_websocket(
        self, request: aioweb.Request, target: GatewayRow, envelope: Envelope
    ) -> aioweb.StreamResponse:
        headers = self._headers(request, envelope)
        for name in OF_WEBSOCKET:
            headers.popall(name, None)
        offered = ",".join(request.headers.getall(hdrs.SEC_WEBSOCKET_PROTOCOL, ()))
        try:
            inner = await self._client(target).ws_connect(
                _url(request),
                headers=headers,
                protocols=[name for part in offered.split(",") if (name := part.strip())],
                max_msg_size=MAX_MESSAGE_BYTES,
            )
        except aiohttp.WSServerHandshakeError as error:
            return _refusal(error)
        async with inner:
            outer = aioweb.WebSocketResponse(
                protocols=[inner.protocol] if inner.protocol else (),
                heartbeat=HEARTBEAT_S,
                max_msg_size=MAX_MESSAGE_BYTES,
                compress=False,
            )
            await outer.prepare(request)
            self.open_websockets += 1
            try:
                await _connect(outer, inner)
            finally:
                self.open_websockets -= 1
        return outer


def socket_path(folder: Path, number: int) -> str:
    """Returns the path of a gateway's socket for the others."""
    return str(folder / f"{number}.sock")


def _url(request: aioweb.Request) -> URL:
    return URL(f"http://gateway{request.rel_url.raw_path_qs}", encoded=True)


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP
    )


async def _body(request: aioweb.Request) -> AsyncIterator[bytes]:
    await send_continue(request)  # the other gateway has seen the key, and invites the body
    async for piece in request.content.iter_any():
        yield piece


def _refusal(error: aiohttp.WSServerHandshakeError) -> aioweb.Response:
    """Returns the answer to a WebSocket that the other gateway refused. Its body is not known
    here."""
    refusal = error_response(
        RequestError(f"the WebSocket was refused: {error.message}", code="websocket_refused")
    )
    headers = _end_to_end(error.headers or {})
    for name in (hdrs.CONTENT_LENGTH, hdrs.CONTENT_TYPE):
        headers.popall(name, None)
    return aioweb.Response(
        status=error.status, body=refusal.body, content_type="application/json", headers=headers
    )


async def _connect(outer: aioweb.WebSocketResponse, inner: aiohttp.ClientWebSocketResponse) -> None:
    """Passes messages both ways until one side closes, and closes the other with the same code."""
    async with asyncio.TaskGroup() as tasks:
        down = tasks.create_task(_pump(inner, outer))
        up = tasks.create_task(_pump(outer, inner))
        await asyncio.wait([down, up], return_when=asyncio.FIRST_COMPLETED)
        down.cancel()
        up.cancel()


async def _pump(source: Any, sink: Any) -> None:
    while True:
        message = await source.receive()
        with suppress(ConnectionError):
            match message.type:
                case aiohttp.WSMsgType.TEXT:
                    await sink.send_str(message.data)
                    continue
                case aiohttp.WSMsgType.BINARY:
                    await sink.send_bytes(message.data)
                    continue
        code = source.close_code or aiohttp.WSCloseCode.GOING_AWAY
        reason = message.extra if message.type is aiohttp.WSMsgType.CLOSE else ""
        await sink.close(code=code, message=(reason or "").encode())
        return
