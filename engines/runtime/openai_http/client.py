"""HTTP client of one OpenAI-compatible server: sends a request and yields chunks of the answer."""

import asyncio
import json
import logging
import os
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any

import aiohttp

from core.errors import EngineError, EngineTimeout, EngineUnreachable, RemoteProtocolError
from core.events import RateLimits
from engines.llm.openai.chunks import DONE, ChatCompletionChunk, read_chunk
from engines.llm.openai.settings import Settings, checked_url, key_of
from engines.runtime.openai_http.errors import LlmHttpError, retry_after_s
from engines.runtime.openai_http.rate_limits import read_limits
from engines.runtime.openai_http.sse import SseReader

logger = logging.getLogger(__name__)

MAX_ERROR_BYTES = 16 * 1024
"Largest part of an error page that is read."
MAX_JSON_BYTES = 1024 * 1024
"Largest JSON answer that is accepted."
KEEPALIVE_S = 60.0
"""Time that an idle connection is kept. Conversations have pauses, and a new connection to a hosted
service costs some 100 ms."""
DRAIN_S = 0.05
"""Time to wait for the end of the response after its last event. Then the connection can be used
again."""
RETRIED = (429, 502, 503)
"""HTTP statuses after which a request is tried once more: busy, or a proxy in front of a server
that is starting."""
RETRY_WAIT_S = 0.25
"Wait before the second try if the server does not name one."
MAX_RETRY_WAIT_S = 2.0
"""Longest wait for a second try. The user waits for the answer, so if the server asks for more, the
request fails."""


class ChatCompletionsClient:
    """Client of one server with one connection pool. The pool is opened in the event loop of the
    first request. All methods raise EngineError only."""

    def __init__(self, settings: Settings, name: str) -> None:
        """Checks the address and reads the key. Raises ConfigError."""
        self.url = checked_url(settings)
        self._name, self._settings = name, settings
        self._key = key_of(settings)
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get(self, url: str) -> Any:
        """Returns the parsed JSON at `url`. Raises LlmHttpError for any status but 200."""
        limit_s = self._settings.connect_timeout_s
        try:
            async with asyncio.timeout(2 * limit_s), self._opened().get(url) as response:
                await self._check(response)
                return await _read_json(response)
        except TimeoutError:
            raise self._timeout(f"no answer from {url}") from None
        except (aiohttp.ClientError, OSError) as exc:
            raise self._unreachable(exc) from exc
        except (ValueError, RecursionError):
            raise self._failed(f"{url} answered with a body that is not JSON") from None

    async def stream(
        self, body: Mapping[str, Any]
    ) -> AsyncGenerator[ChatCompletionChunk | RateLimits, None]:
        """Posts a chat completion and yields its chunks.

        The first value is the rate limits, if the headers have them. Closing the generator closes
        the connection at once; this is how servers learn that the answer is not wanted any more.
        """
        answer, chunk = await self._begin(body)
        try:
            if (limits := answer.limits) is not None:
                yield limits
            while chunk is not None:
                yield chunk
                chunk = await self._next(answer, self._settings.token_timeout_s)
            await answer.drain()
        finally:
            answer.close()

    async def aclose(self) -> None:
        """Closes all connections, idle ones too. A later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _begin(
        self, body: Mapping[str, Any]
    ) -> "tuple[ChatCompletionStream, ChatCompletionChunk | None]":
        """Posts the request and returns the first chunk. Tries once more if that fails before the
        first chunk."""
        limit_s = self._settings.first_token_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                try:
                    return await self._ask(body)
                except (EngineUnreachable, LlmHttpError) as exc:
                    wait_s = _wait_s(exc)
                    if wait_s is None:
                        raise
                    logger.info("llm engine %r: %s; trying once more", self._name, exc.detail)
                await asyncio.sleep(wait_s)
                return await self._ask(body)
        except TimeoutError:
            raise self._timeout(f"no first token within {limit_s:g} s") from None

    async def _ask(
        self, body: Mapping[str, Any]
    ) -> "tuple[ChatCompletionStream, ChatCompletionChunk | None]":
        try:
            response = await self._opened().post(
                f"{self.url}/chat/completions", json=body, allow_redirects=False
            )
        except TimeoutError:  # aiohttp's own timeout for connecting
            why = f"no connection in {self._settings.connect_timeout_s:g} s"
            raise self._unreachable(why) from None
        except (aiohttp.ClientError, OSError) as exc:
            raise self._unreachable(exc) from exc
        answer = ChatCompletionStream(response)
        try:
            await self._check(response)
            while (chunk := await self._next(answer, None)) is not None and chunk.is_empty:
                pass  # some servers send an empty chunk before they compute the first token
            return answer, chunk
        except BaseException:
            answer.close()
            raise

    async def _next(
        self, answer: "ChatCompletionStream", limit_s: float | None
    ) -> ChatCompletionChunk | None:
        """Returns the next chunk; None at the end."""
        try:
            async with asyncio.timeout(limit_s):
                return await answer.next()
        except TimeoutError:
            raise self._timeout(f"no data for {limit_s} s within an answer") from None
        except (aiohttp.ClientError, OSError) as exc:
            raise self._unreachable(exc) from exc
        except RemoteProtocolError as exc:
            raise self._failed(f"sent {exc}") from exc

    def _opened(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            self._loop = loop
            connect_s = self._settings.connect_timeout_s
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
                headers=headers,
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=connect_s, sock_connect=connect_s, sock_read=None
                ),
            )
        return self._session

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        """Raises LlmHttpError if the status is not 200."""
        if response.status == 200:
            return
        body = b""
        with suppress(aiohttp.ClientError, OSError):
            body = await response.content.read(MAX_ERROR_BYTES)
        raise LlmHttpError(
            self._name,
            response.status,
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
        return EngineUnreachable("llm", self._name, f"{self.url}: {why}")

    def _timeout(self, why: str) -> EngineTimeout:
        return EngineTimeout("llm", self._name, why)

    def _failed(self, why: str) -> EngineError:
        return EngineError("llm", self._name, f"{self.url} {why}")


class ChatCompletionStream:
    """The chunks of one HTTP response, in the order of their arrival."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._reader = SseReader()
        self._waiting: deque[str] = deque()
        self._is_over = False
        self._is_finished = False
        "True after a chunk that had a `finish_reason`: it was the last one with text."

    @property
    def limits(self) -> RateLimits | None:
        """Rate limits from the response's headers, if there are any."""
        return read_limits(self._response.headers)

    async def next(self) -> ChatCompletionChunk | None:
        """Returns the next chunk; None at the end. Raises RemoteProtocolError for data that is no
        chunk, and aiohttp's errors, also for a stream that stops without an end."""
        if self._response.content_type == "application/json":
            return await self._whole()
        data = await self._data()
        if data is None or data.strip() == DONE:
            if data is None and not self._is_finished:
                raise aiohttp.ClientPayloadError
            return None
        chunk = read_chunk(data)
        self._is_finished |= any(choice.finish_reason for choice in chunk.choices or ())
        return chunk

    async def _data(self) -> str | None:
        """Returns the data of the next event; None at the end."""
        while not self._waiting and not self._is_over:
            received = await self._response.content.readany()
            self._waiting.extend(self._reader.receive_data(received))
            if not received:
                self._is_over = True
                if (last := self._reader.end()) is not None:
                    self._waiting.append(last)
        return self._waiting.popleft() if self._waiting else None

    async def _whole(self) -> ChatCompletionChunk | None:
        """Returns the complete answer of a server that does not stream, as one chunk; then None."""
        if self._is_over:
            return None
        self._is_over = True
        body = bytearray()
        async for piece in self._response.content.iter_any():
            body += piece
            if len(body) > MAX_JSON_BYTES:
                raise RemoteProtocolError(f"an answer of more than {MAX_JSON_BYTES} bytes")
        return read_chunk(body.decode(errors="replace"))

    async def drain(self) -> None:
        """Reads the end of the response, so that its connection can be used again."""
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._response.content.readany()

    def close(self) -> None:
        """Returns the connection to the pool if the response was read to its end; closes it
        otherwise."""
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


def _wait_s(exc: EngineUnreachable | LlmHttpError) -> float | None:
    """Returns the seconds to wait before a second try; None if a second try makes no sense."""
    if isinstance(exc, EngineUnreachable):
        return 0.0
    if exc.status not in RETRIED:
        return None
    wait_s = RETRY_WAIT_S if exc.retry_after_s is None else exc.retry_after_s
    return wait_s if wait_s <= MAX_RETRY_WAIT_S else None


async def _read_json(response: aiohttp.ClientResponse) -> Any:
    """Returns the parsed JSON of a response. Raises ValueError if it is no JSON, or too large."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > MAX_JSON_BYTES:
            raise ValueError("too large")
    return json.loads(body)
