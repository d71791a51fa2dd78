"""Passes requests and WebSockets on to the gateway that answers them, over sockets in the state
folder. Doors know nothing of it.

A request that was passed on carries one header more, `Earshot-Gateway`, with the client's address
and a secret that only the gateways of this server know. The receiving gateway takes the header away
and shows its doors the client's address.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hmac import compare_digest
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiohttp import web as aioweb
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from core.access.named_key import NamedKey
from core.errors import Forbidden, OverloadedError
from server.gateways.channel import GatewayRow
from server.gateways.relay import (
    CONNECT_TIMEOUT_S,
    is_websocket,
    open_client,
    passed_headers,
    relay,
)
from server.gateways.routing import Fleet, RoutedRequest
from server.http.access import caller_of
from server.http.edge import PASSED_ON

ENVELOPE = "Earshot-Gateway"
"Header of a request between gateways: secret, hops, scheme and address of the client."

MAX_HOPS = 2
"""Most times that a request is passed on. The second is for a gateway that began to retire while
the request was on its way."""

SECRET_PREFIX = "ek_"  # noqa: S105 - the beginning of client secrets


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
            self.open_websockets += is_websocket(request)
            try:
                while (target := self._fleet.destination(facts)) is not None:
                    hops = came.hops + 1 if came is not None else 1
                    envelope = Envelope(hops, request.scheme, request.remote or "")
                    headers = self._headers(request, envelope)
                    try:
                        return await relay(self._client(target), _url(request), headers, request)
                    except aiohttp.ClientConnectorError:  # it was killed just now: nothing was sent
                        self._fleet.lose(target)
            except (aiohttp.ClientConnectionError, TimeoutError) as error:
                raise OverloadedError(
                    "the gateway that answers this has just ended; try again",
                    retry_after_s=1,
                    code="gateway_restarting",
                ) from error
            finally:
                self.open_websockets -= is_websocket(request)
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
            path = socket_path(self._folder, target.number)
            self._clients[target.number] = open_client(aiohttp.UnixConnector(path, limit=0))
        return self._clients[target.number]

    def _headers(self, request: aioweb.Request, envelope: Envelope) -> CIMultiDict[str]:
        headers = passed_headers(request)
        headers[ENVELOPE] = envelope.header(self._token)
        return headers


def socket_path(folder: Path, number: int) -> str:
    """Returns the path of a gateway's socket for the others."""
    return str(folder / f"{number}.sock")


def _url(request: aioweb.Request) -> URL:
    return URL(f"http://gateway{request.rel_url.raw_path_qs}", encoded=True)
