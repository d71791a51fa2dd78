"""Passes requests and WebSockets on to another process of Earshot, which answers them in place of
this one. `forward.py` uses it between gateways, `server.machines` between machines."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import aiohttp
from aiohttp import hdrs
from aiohttp import web as aioweb
from multidict import CIMultiDict
from yarl import URL

from core.errors import RequestError
from core.http.client_connection import while_connected
from core.tasks import single_error
from server.http.edge import PASSED_ON, REQUEST_ID, error_response, send_continue

CONNECT_TIMEOUT_S = 2.0
"Limit for connecting to the other process, in seconds. It takes milliseconds if that is alive."

HEARTBEAT_S = 20.0
"""Interval of pings to the client of a WebSocket that is passed on, in seconds. The pings of the
door end at this process."""

MAX_MESSAGE_BYTES = 16 * 2**20
"Largest WebSocket message that is passed on. The limits of all doors are smaller."

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
        "earshot-gateway",
        "earshot-machine",
    )
)
"Headers, in lower case, that belong to one connection and are not passed on (RFC 9110, 7.6.1)."

OF_WEBSOCKET = frozenset(
    ("sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions")
) | {"sec-websocket-protocol"}
"Headers, in lower case, with which each connection agrees on its own WebSocket."


def is_websocket(request: aioweb.Request) -> bool:
    """Returns True if the client asks for a WebSocket."""
    return request.headers.get(hdrs.UPGRADE, "").lower() == "websocket"


def open_client(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    """Returns a client that adds nothing to the requests that it passes on."""
    return aiohttp.ClientSession(
        connector=connector,
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


def passed_headers(request: aioweb.Request) -> CIMultiDict[str]:
    """Returns the headers of a request as they are passed on."""
    headers = end_to_end(request.headers)
    headers.popall(hdrs.EXPECT, None)  # `expect100` sets it
    headers["X-Request-ID"] = request[REQUEST_ID]  # both log the same id
    return headers


async def relay(
    client: aiohttp.ClientSession, url: URL, headers: CIMultiDict[str], request: aioweb.Request
) -> aioweb.StreamResponse:
    """Passes a request or a WebSocket on, and its answer back. `url`, `headers`: what the other
    process gets. Raises aiohttp.ClientConnectionError or TimeoutError if it is not there."""
    request[PASSED_ON] = True
    if is_websocket(request):
        return await _relay_websocket(client, url, headers, request)
    return await _relay_request(client, url, headers, request)


async def _relay_request(
    client: aiohttp.ClientSession, url: URL, headers: CIMultiDict[str], request: aioweb.Request
) -> aioweb.StreamResponse:
    async def send() -> aiohttp.ClientResponse:
        return await client.request(
            request.method,
            url,
            headers=headers,
            data=_body(request) if request.body_exists else None,
            allow_redirects=False,
            expect100=request.body_exists and hdrs.EXPECT in request.headers,
        )

    with single_error():
        answer = await while_connected(request, send())
    try:
        response = aioweb.StreamResponse(
            status=answer.status, reason=answer.reason, headers=end_to_end(answer.headers)
        )
        await response.prepare(request)
        async for piece in answer.content.iter_any():
            await response.write(piece)
        await response.write_eof()
    finally:
        # An answer that was not read to its end holds its connection.
        answer.close()
    return response


async def _relay_websocket(
    client: aiohttp.ClientSession, url: URL, headers: CIMultiDict[str], request: aioweb.Request
) -> aioweb.StreamResponse:
    for name in OF_WEBSOCKET:
        headers.popall(name, None)
    offered = ",".join(request.headers.getall(hdrs.SEC_WEBSOCKET_PROTOCOL, ()))
    try:
        inner = await client.ws_connect(
            url,
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
        await _connect(outer, inner)
    return outer


def end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Returns the headers that do not belong to one connection."""
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP
    )


async def _body(request: aioweb.Request) -> AsyncIterator[bytes]:
    await send_continue(request)  # the other process has seen the key, and invites the body
    async for piece in request.content.iter_any():
        yield piece


def _refusal(error: aiohttp.WSServerHandshakeError) -> aioweb.Response:
    """Returns the answer to a WebSocket that the other process refused. Its body is not known
    here."""
    refusal = error_response(
        RequestError(f"the WebSocket was refused: {error.message}", code="websocket_refused")
    )
    headers = end_to_end(error.headers or {})
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
