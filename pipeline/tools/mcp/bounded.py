"""HTTP to MCP servers whose answers are read only as far as a message may go."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from httpx2 import AsyncHTTPTransport, Request, Response, StreamError

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Unpacked. A camera's picture as base64 has room; of a result a model is shown 8 000 characters.
Without a bound, whoever answers decides on our memory."""


class McpMessageTooLarge(StreamError):
    """The library tells whoever asked, and keeps the connection."""

    def __init__(self) -> None:
        super().__init__(f"the answer has more than {MAX_MESSAGE_BYTES // 1024**2} MiB")


class SizeLimitedTransport(AsyncHTTPTransport):
    async def handle_async_request(self, request: Request) -> Response:
        """See `AsyncHTTPTransport`. Reading the whole answer raises TooLarge; events in a stream
        are bounded one by one, by who reads them."""
        response = await super().handle_async_request(request)
        return _SizeLimitedResponse(
            response.status_code,
            headers=response.headers,
            stream=response.stream,
            extensions=response.extensions,
        )


class _SizeLimitedResponse(Response):
    _is_read_whole = False

    async def aread(self) -> bytes:
        self._is_read_whole = True
        return await super().aread()

    async def aiter_bytes(self, chunk_size: int | None = None) -> AsyncGenerator[bytes, None]:
        size = 0
        async with aclosing(super().aiter_bytes(chunk_size)) as parts:
            async for part in parts:
                size += len(part)
                if self._is_read_whole and size > MAX_MESSAGE_BYTES:
                    raise McpMessageTooLarge
                yield part
