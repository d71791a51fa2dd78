"""The connection to an MCP server: a program that we start, or an address."""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from httpx2 import AsyncHTTPTransport, Request, Response, StreamError

from core.errors import EarshotError
from pipeline.tools.mcp.settings import McpServerSettings

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

MAX_LINE_BYTES = 4096
"Most bytes of a line that a program writes to its standard error. The rest is dropped."

REQUEST_TIMEOUT_S = 30.0
"Seconds to connect, and to send a request."

STREAM_TIMEOUT_S = 300.0
"""Seconds without a byte of an answer. Servers keep event streams open and send something now and
then."""

GOODBYE_S = 2.0
"""Seconds for a server to confirm that we leave. A server that does not must not delay the end of a
session."""


class McpAccessDenied(EarshotError):
    """The server refused us: `headers` are wrong, or it has banned our address.

    It is not tried again, because some servers ban a client that keeps trying.
    """

    code = "mcp_refused"


@asynccontextmanager
async def open_transport(
    server: McpServerSettings,
    on_end: Callable[[], None],
    on_line: Callable[[str], None],
    on_status: Callable[[int], None],
    *,
    is_older: bool = False,
) -> AsyncIterator[tuple[Any, Any]]:
    """Opens the transport for `mcp.Client`: yields the stream to read from and the one to write to.

    is_older: use HTTP with SSE, as in 2024, not streamable HTTP.
    on_end: called when the program closed its output, which is the sign that it ended.
    on_line: receives the lines of its standard error.
    on_status: receives the status of an HTTP error; what it raises ends the connection. Leaving the
        context stops the program: its input is closed, and after 2 s the program and its children
        are killed.
    """
    from mcp import StdioServerParameters, stdio_client
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    from pipeline.tools.mcp.transport import MAX_MESSAGE_BYTES

    async with AsyncExitStack() as stack:
        if server.command:
            errors = await stack.enter_async_context(_lines_to(on_line))
            parameters = StdioServerParameters(
                command=server.command,
                args=list(server.args),
                env=dict(server.env),
                cwd=_folder(server.cwd),
            )
            ways = stdio_client(parameters, errors)
        elif is_older:
            where = server.sse_url or server.url

            def made(*_: object, **__: object) -> "AsyncClient":
                return _http(server, on_status)

            ways = sse_client(where, httpx_client_factory=made)
        else:
            client = await stack.enter_async_context(_http(server, on_status))
            ways = streamable_http_client(
                server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
            )
        read, write = await stack.enter_async_context(ways)
        yield _MonitoredStream(read, on_end), write


def _http(server: McpServerSettings, on_status: Callable[[int], None]) -> "AsyncClient":
    from httpx2 import AsyncClient, Request, Timeout

    from pipeline.tools.mcp.transport import SizeLimitedTransport

    class McpHttpClient(AsyncClient):
        async def send(self, request: Request, **how: Any) -> "Response":
            """Sends a request. A DELETE ends the session at the server, so it must not take
            long."""
            async with asyncio.timeout(GOODBYE_S if request.method == "DELETE" else None):
                return await super().send(request, **how)

    async def look(response: "Response") -> None:
        if response.status_code >= 400:
            on_status(response.status_code)

    return McpHttpClient(
        headers=dict(server.headers),
        timeout=Timeout(REQUEST_TIMEOUT_S, read=STREAM_TIMEOUT_S),
        transport=SizeLimitedTransport(
            # Our own context: it knows SSL_CERT_FILE, which a client with `trust_env=False` does
            # not.
            verify=ssl.create_default_context() if server.verify_tls else False,
            trust_env=False,
            proxy=server.proxy or None,
        ),
        # A proxy of the environment would resolve the name again, after `core.http.fetch_policy`
        # checked its address.
        trust_env=False,
        event_hooks={"response": [look]},
    )


def _folder(path: str) -> Path | None:
    return Path(path).expanduser() if path else None


class _MonitoredStream:
    """A stream of messages that reports its end."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream, self._on_end = stream, on_end

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_MonitoredStream":
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> bool | None:
        ended: bool | None = await self._stream.__aexit__(*exc)
        return ended


@asynccontextmanager
async def _lines_to(on_line: Callable[[str], None]) -> AsyncIterator[TextIO]:
    """Yields a file for a program's standard error, and passes its lines on.

    Our own standard error would mix its lines with ours.
    """
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as file:
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(reading, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: _LineProtocol(on_line), pipe)
        try:
            yield file
        finally:
            transport.close()


class _LineProtocol(asyncio.Protocol):
    """Splits bytes into lines."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._kept = b""

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._kept + data).split(b"\n")
        self._kept = rest[:MAX_LINE_BYTES]
        for line in lines:
            if text := line[:MAX_LINE_BYTES].decode("utf-8", "replace").strip():
                self._on_line(text)


# HTTP whose answers are limited to MAX_MESSAGE_BYTES.

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Most bytes of a message, unpacked. A camera's picture as base64 fits; of a result a model sees
only 8 000 characters. Without a limit, the server would decide how much memory we use."""


class McpMessageTooLarge(StreamError):
    """An answer is too large. The library reports it to the caller and keeps the connection."""

    def __init__(self) -> None:
        super().__init__(f"the answer has more than {MAX_MESSAGE_BYTES // 1024**2} MiB")


class SizeLimitedTransport(AsyncHTTPTransport):
    """HTTP transport that limits the size of answers which are read as a whole."""

    async def handle_async_request(self, request: Request) -> Response:
        """See `AsyncHTTPTransport`. Reading a too large answer as a whole raises
        McpMessageTooLarge.

        Events of a stream are limited one by one, by their reader.
        """
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
