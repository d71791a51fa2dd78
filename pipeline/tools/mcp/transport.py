"""Opens the connection to an MCP server: a program that we start, or an address."""

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Self, TextIO

from httpx2 import AsyncClient, AsyncHTTPTransport, Request, Response, StreamError, Timeout

from core.errors import EarshotError
from pipeline.tools.mcp.settings import McpServerSettings

MAX_LINE_BYTES = 4096
"Most bytes of a line of a program's standard error. The rest of the line is dropped."

REQUEST_TIMEOUT_S = 30.0
"Longest time to connect, and to send a request."

STREAM_TIMEOUT_S = 300.0
"""Longest time without a byte of an answer. It is long, because servers keep event streams open and
seldom send an event."""

SESSION_END_TIMEOUT_S = 2.0
"""Longest wait for a server to confirm the end of its session. It is short, because it delays the
end of ours."""


class McpAccessDenied(EarshotError):
    """The server refused us: `headers` are wrong, or it has banned our address.

    No further attempt is made, because some servers ban a client that keeps trying.
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
    """Yields the transport for `mcp.Client`: (stream to read from, stream to write to).

    Leaving the context stops the program: its input is closed, and after 2 s the program and its
    children are killed.

    on_end: called when the program has closed its output, which means that it ended.
    on_line: called with each line of the program's standard error.
    on_status: called with the status of an HTTP error; an error that it raises ends the connection.
    is_older: True for HTTP with SSE, as in 2024; False for streamable HTTP.
    """
    from mcp import StdioServerParameters, stdio_client
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    async with AsyncExitStack() as stack:
        if server.command:
            errors = await stack.enter_async_context(_lines_to(on_line))
            parameters = StdioServerParameters(
                command=server.command,
                args=list(server.args),
                env=dict(server.env),
                cwd=_folder(server.cwd),
            )
            streams = stdio_client(parameters, errors)
        elif is_older:
            address = server.sse_url or server.url

            def make_client(*_: object, **__: object) -> AsyncClient:
                return _http(server, on_status)

            streams = sse_client(address, httpx_client_factory=make_client)
        else:
            client = await stack.enter_async_context(_http(server, on_status))
            streams = streamable_http_client(
                server.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
            )
        read, write = await stack.enter_async_context(streams)
        yield _MonitoredStream(read, on_end), write


def _http(server: McpServerSettings, on_status: Callable[[int], None]) -> AsyncClient:
    class McpHttpClient(AsyncClient):
        async def send(self, request: Request, **options: Any) -> Response:
            """Sends a request (see `AsyncClient.send`)."""
            # A DELETE ends the session at the server.
            async with asyncio.timeout(
                SESSION_END_TIMEOUT_S if request.method == "DELETE" else None
            ):
                return await super().send(request, **options)

    async def check_status(response: Response) -> None:
        if response.status_code >= 400:
            on_status(response.status_code)

    return McpHttpClient(
        headers=dict(server.headers),
        timeout=Timeout(REQUEST_TIMEOUT_S, read=STREAM_TIMEOUT_S),
        transport=SizeLimitedTransport(
            # Our own context, because a client with `trust_env=False` ignores SSL_CERT_FILE.
            verify=ssl.create_default_context() if server.verify_tls else False,
            trust_env=False,
            proxy=server.proxy or None,
        ),
        # A proxy of the environment would resolve the name again, after `core.http.fetch_policy`
        # checked its address.
        trust_env=False,
        event_hooks={"response": [check_status]},
    )


def _folder(path: str) -> Path | None:
    return Path(path).expanduser() if path else None


class _MonitoredStream:
    """Wraps a stream of messages and reports its end."""

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
    """Yields a file for a program's standard error, and calls `on_line` with each of its lines.

    With our own standard error its lines would mix with ours.
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


MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Most bytes of a decompressed message: enough for a camera's picture in Base64. A model gets only
8 000 characters of a result. Without a limit, the server would decide how much memory we use."""


class McpMessageTooLarge(StreamError):
    """An answer is too large. The library raises it in the call and keeps the connection."""

    def __init__(self) -> None:
        super().__init__(f"the answer has more than {MAX_MESSAGE_BYTES // 1024**2} MiB")


class SizeLimitedTransport(AsyncHTTPTransport):
    """Limits the size of HTTP answers that are read as a whole."""

    async def handle_async_request(self, request: Request) -> Response:
        """Sends a request (see `AsyncHTTPTransport`).

        Reading a whole answer that is too large raises McpMessageTooLarge. The reader of an event
        stream limits each event.
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
