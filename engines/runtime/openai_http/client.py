"""HTTP client of one OpenAI-compatible server, for every engine that calls such a server.

It has the connection pool, the key, the deadlines and the retry. An engine supplies the path and
the body of its requests, and a `ResponseReader` for its kind of response.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp

from core.errors import (
    ConfigError,
    EngineError,
    EngineMissing,
    EngineTimeout,
    EngineUnreachable,
    RemoteProtocolError,
)
from engines.runtime.openai_http.errors import OpenAiHttpError, retry_after_s

logger = logging.getLogger(__name__)

MAX_ERROR_BYTES = 16 * 1024
"Largest part of an error page that is read."
MAX_JSON_BYTES = 1024 * 1024
"Largest JSON answer that is accepted."
KEEPALIVE_S = 60.0
"""Time that an idle connection is kept. Conversations have pauses, and a new connection to a hosted
service costs some 100 ms."""
DRAIN_S = 0.05
"""Longest wait for the end of the response after its last item. A connection whose response was
read to the end can be used again."""
RETRY_STATUSES = (429, 502, 503)
"""HTTP statuses after which a request is tried once more: busy, or a proxy in front of a server
that is starting."""
RETRY_WAIT_S = 0.25
"Wait before the second try if the server does not name one."
MAX_RETRY_WAIT_S = 2.0
"""Longest wait for a second try. The user waits for the answer, so if the server asks for more, the
request fails."""

RequestBody = Mapping[str, object] | Callable[[], aiohttp.FormData]
"JSON of a request, or a function that creates its form."

ItemT = TypeVar("ItemT")
ItemT_co = TypeVar("ItemT_co", covariant=True)


class ResponseReader(Protocol[ItemT_co]):
    """Splits the body of one response into items. Both methods may raise aiohttp's errors, and
    RemoteProtocolError for data of a wrong format."""

    async def first(self) -> ItemT_co | None:
        """Returns the first item with content; None if there is none. As long as it has not
        arrived, the request can be sent again without the user noticing."""
        ...

    async def next(self) -> ItemT_co | None:
        """Returns the next item; None at the end."""
        ...


class OpenAiHttpClient:
    """Client of one server with one connection pool. The pool is opened in the event loop of the
    first request. All methods raise EngineError only."""

    def __init__(
        self,
        stage: str,
        engine: str,
        *,
        base_url: str,
        api_key: str,
        api_key_file: str,
        connect_timeout_s: float,
    ) -> None:
        """Checks the address and reads the key.

        stage, engine: kind and name of the engine in errors. base_url: address of the API including
        its version. api_key, api_key_file: the key, or the file with it; both empty: no key.
        Raises EngineMissing without an address; ConfigError for a bad address or key.
        """
        self.url = _check_url(stage, engine, base_url)
        self._stage, self._engine = stage, engine
        self._key = _read_key(stage, api_key, api_key_file)
        self._connect_timeout_s = connect_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get_json(self, url: str) -> object:
        """Returns the parsed JSON at `url`. Raises OpenAiHttpError for any status but 200."""
        limit_s = 2 * self._connect_timeout_s
        try:
            async with asyncio.timeout(limit_s), self._open_session().get(url) as response:
                await self._check_status(response)
                return json.loads(await read_limited(response))
        except TimeoutError:
            raise self._timeout(f"{url} did not answer within {limit_s:g} s") from None
        except (aiohttp.ClientError, OSError) as exc:
            raise self._unreachable(exc) from exc
        except (RemoteProtocolError, ValueError, RecursionError):
            raise self._failed(f"{url} answered with a body that is not JSON") from None

    async def stream(
        self,
        path: str,
        body: RequestBody,
        reader_type: Callable[[aiohttp.ClientResponse], ResponseReader[ItemT]],
        *,
        first_item_name: str,
        first_timeout_s: float,
        next_timeout_s: float,
    ) -> AsyncGenerator[ItemT, None]:
        """Posts a request and yields the items of the response.

        path: path of the request after the base URL, such as `/chat/completions`.
        body: an object that is sent as JSON, or a function that creates a form. It is called once
        for each try, because a form can be sent only once.
        reader_type: creates the reader of a response.
        first_item_name: name of the first item in errors, such as "first token".
        first_timeout_s: longest wait for the first item, with the second try.
        next_timeout_s: longest wait for each further item.
        Closing the generator closes the connection at once, unless the response has ended, so that
        the server stops its work.
        Raises OpenAiHttpError for any status but 200, and other kinds of EngineError.
        """
        try:
            async with asyncio.timeout(first_timeout_s):
                response, reader, item = await self._begin(path, body, reader_type)
        except TimeoutError:
            raise self._timeout(
                f"its server sent no {first_item_name} within {first_timeout_s:g} s"
            ) from None
        try:
            while item is not None:
                yield item
                try:
                    async with asyncio.timeout(next_timeout_s):
                        item = await self._read(reader.next)
                except TimeoutError:
                    raise self._timeout(
                        f"its server sent no data for {next_timeout_s:g} s in the middle of an"
                        " answer"
                    ) from None
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await response.content.readany()
        finally:
            _close(response)

    async def aclose(self) -> None:
        """Closes all connections, idle ones too. A later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _begin(
        self,
        path: str,
        body: RequestBody,
        reader_type: Callable[[aiohttp.ClientResponse], ResponseReader[ItemT]],
    ) -> tuple[aiohttp.ClientResponse, ResponseReader[ItemT], ItemT | None]:
        """Posts the request and reads the first item. Tries once more if that fails."""
        try:
            return await self._send_once(path, body, reader_type)
        except (EngineUnreachable, OpenAiHttpError) as exc:
            wait_s = _wait_s(exc)
            if wait_s is None:
                raise
            message = "%s engine %r: %s; trying once more"
            logger.info(message, self._stage, self._engine, exc.detail)
        await asyncio.sleep(wait_s)
        return await self._send_once(path, body, reader_type)

    async def _send_once(
        self,
        path: str,
        body: RequestBody,
        reader_type: Callable[[aiohttp.ClientResponse], ResponseReader[ItemT]],
    ) -> tuple[aiohttp.ClientResponse, ResponseReader[ItemT], ItemT | None]:
        try:
            content = {"data": body()} if callable(body) else {"json": body}
            response = await self._open_session().post(
                f"{self.url}{path}", allow_redirects=False, **content
            )
        except TimeoutError:  # aiohttp's own timeout for connecting
            why = f"no connection within {self._connect_timeout_s:g} s"
            raise self._unreachable(why) from None
        except (aiohttp.ClientError, OSError) as exc:
            raise self._unreachable(exc) from exc
        try:
            await self._check_status(response)
            reader = reader_type(response)
            return response, reader, await self._read(reader.first)
        except BaseException:
            _close(response)
            raise

    async def _read(self, read: Callable[[], Awaitable[ItemT]]) -> ItemT:
        """Returns the item that `read` returns. Turns its errors into kinds of EngineError."""
        try:
            return await read()
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as exc:
            raise self._unreachable(exc) from exc
        except RemoteProtocolError as exc:
            raise self._failed(f"{self.url} sent {exc}") from exc

    def _open_session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            self._loop = loop
            connect_s = self._connect_timeout_s
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
                headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=connect_s, sock_connect=connect_s, sock_read=None
                ),
            )
        return self._session

    async def _check_status(self, response: aiohttp.ClientResponse) -> None:
        """Raises OpenAiHttpError if the status is not 200."""
        if response.status == 200:
            return
        body = b""
        with suppress(aiohttp.ClientError, OSError):
            body = await response.content.read(MAX_ERROR_BYTES)
        raise OpenAiHttpError(
            self._stage,
            self._engine,
            response.status,
            # Servers repeat a wrong key. An empty key must not match between any two letters.
            body.decode(errors="replace").replace(self._key or "\0", "***"),
            retry_after_s(response.headers.get("Retry-After", "")),
        )

    def _unreachable(self, why: Exception | str) -> EngineUnreachable:
        if isinstance(why, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
            why = "the connection broke"
        elif isinstance(why, aiohttp.ClientConnectorDNSError):
            why = "no host of that name"
        elif isinstance(why, aiohttp.ClientConnectorError):
            number = why.os_error.errno
            why = f"no connection: {os.strerror(number) if number else why.os_error.strerror}"
        elif isinstance(why, Exception):
            why = f"no connection: {type(why).__name__}"
        return EngineUnreachable(self._stage, self._engine, f"{self.url}: {why}")

    def _timeout(self, why: str) -> EngineTimeout:
        return EngineTimeout(self._stage, self._engine, why)

    def _failed(self, why: str) -> EngineError:
        return EngineError(self._stage, self._engine, why)


class WholeBodyReader:
    """A `ResponseReader` whose only item is the whole body of a response."""

    def __init__(
        self, response: aiohttp.ClientResponse, *, max_bytes: int = MAX_JSON_BYTES
    ) -> None:
        self._response, self._max_bytes = response, max_bytes

    async def first(self) -> str:
        """Returns the whole body. Raises RemoteProtocolError for one that is too long."""
        return (await read_limited(self._response, self._max_bytes)).decode(errors="replace")

    async def next(self) -> None:
        """Returns None: there is only one body."""


async def read_limited(response: aiohttp.ClientResponse, max_bytes: int = MAX_JSON_BYTES) -> bytes:
    """Returns the whole body. Raises RemoteProtocolError above `max_bytes`."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > max_bytes:
            raise RemoteProtocolError(f"an answer of more than {max_bytes} bytes")
    return bytes(body)


def _close(response: aiohttp.ClientResponse) -> None:
    """Returns the connection to the pool if the response was read to its end; closes it
    otherwise."""
    if response.content.at_eof():
        response.release()
    else:
        response.close()


def _wait_s(exc: EngineUnreachable | OpenAiHttpError) -> float | None:
    """Returns the seconds to wait before a second try; None if a second try makes no sense."""
    if isinstance(exc, EngineUnreachable):
        return 0.0
    if exc.status not in RETRY_STATUSES:
        return None
    wait_s = RETRY_WAIT_S if exc.retry_after_s is None else exc.retry_after_s
    return wait_s if wait_s <= MAX_RETRY_WAIT_S else None


def _check_url(stage: str, engine: str, base_url: str) -> str:
    """Returns the base URL without a slash at its end. Raises EngineMissing if it is empty,
    ConfigError if it is not an address of the web or contains a password."""
    if not base_url:
        raise EngineMissing(stage, engine, "no server: set base_url (http://host:port/v1)")
    url = base_url.rstrip("/")
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    else:
        if parts.username or parts.password:
            why = (
                "it must not contain a name or a password; a key goes into api_key or api_key_file"
            )
            raise ConfigError(f"{stage} base_url: {why}")
    if not is_valid:
        raise ConfigError(f"{stage} base_url: {url!r} is not an http:// or https:// address")
    return url


def _read_key(stage: str, api_key: str, api_key_file: str) -> str:
    """Returns the key; empty for none. Raises ConfigError for a key that cannot be read or sent."""
    if api_key and api_key_file:
        raise ConfigError(f"{stage} api_key and api_key_file are both set: set only one of them")
    if api_key_file:
        path = Path(api_key_file).expanduser()
        try:
            api_key = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            why = f"{path} cannot be read: {type(exc).__name__}"
            raise ConfigError(f"{stage} api_key_file: {why}") from None
    if not (api_key.isascii() and api_key.isprintable()):
        raise ConfigError(
            f"{stage} api_key has characters that cannot be sent; allowed: printable ASCII"
        )
    return api_key
