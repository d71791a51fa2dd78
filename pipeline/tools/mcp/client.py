"""Connects to one MCP server in the background, and again whenever the connection is lost."""

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from core.errors import ConfigError, EarshotError, first_error
from core.ports import ToolContext, ToolOutcome, ToolSpec
from core.tasks import Backoff
from pipeline.tools.mcp.schema import MAX_TOOLS, tool_outcome, tool_specs
from pipeline.tools.mcp.settings import McpServerSettings
from pipeline.tools.mcp.transport import McpAccessDenied, open_transport


def is_cancelling() -> bool:
    """Returns True if the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def is_protocol_failure(error: Exception) -> bool:
    """Returns True if a server answered, but not as an MCP server does."""
    from httpx2 import ConnectError

    return not isinstance(first_error(error), TimeoutError | EarshotError | ConnectError)


def is_refusal(error: Exception) -> bool:
    """Returns True if the server refused us (McpAccessDenied)."""
    if isinstance(error, ExceptionGroup):
        return error.subgroup(McpAccessDenied) is not None
    return isinstance(error, McpAccessDenied)


def lost_connection_codes() -> tuple[int, ...]:
    """Returns the error codes that mean a lost connection.

    INVALID_REQUEST comes from a restarted server, which does not know our session.
    """
    from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST

    return CONNECTION_CLOSED, INVALID_REQUEST


def is_bad_stream(message: str) -> bool:
    """Returns True if the server sent an event that is too large. The server is still connected."""
    # The library has no code of its own for this error.
    return message.startswith("SSE stream failed")


if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 60.0
"Longest time to connect. `uvx` and `npx` download a server before its first start."

LIST_EVERY_S = 60.0
"""Time between two listings of the tools. They find changes that a server does not report, and a
server that went away silently."""

LISTEN_AGAIN_S = 5.0
"Wait before the next subscription to changes: proxies close streams on which nothing happens."

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
"First and longest wait between two attempts to connect. The wait is doubled each time."

STABLE_AFTER_S = 10.0
"Duration after which a connection counts as good: the next wait is FIRST_WAIT_S again."

NO_STREAMABLE_HTTP = (400, 404, 405)
"HTTP status of a server that knows only HTTP with SSE (MCP 2025-03-26, backwards compatibility)."

MAX_REASON_CHARS = 300
"Most characters of an error or a log line of the server."
MAX_PAGES = 20
"Most pages of one listing of the tools."


def mcp_tools(servers: Mapping[str, McpServerSettings]) -> tuple["McpToolProvider", ...]:
    """Returns a provider for each server, by the server's name; its `run` connects.

    Raises ConfigError if the library is not installed.
    """
    if servers and find_spec("mcp") is None:
        raise ConfigError("tools.mcp: the package mcp is not installed: `earshot extras add mcp`")
    return tuple(McpToolProvider(name, server) for name, server in servers.items())


class McpToolProvider:
    """ToolProvider of one MCP server. It has tools only while the server is connected."""

    def __init__(
        self,
        name: str,
        server: McpServerSettings,
        *,
        first_wait_s: float = FIRST_WAIT_S,
        connect_timeout_s: float | None = None,
        admit: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """Takes the server's settings.

        name: the server's name, for the log and for fallback names of tools.
        first_wait_s: wait before the second attempt to connect.
        connect_timeout_s: longest time of an attempt; None: CONNECT_TIMEOUT_S.
        admit: awaited before each attempt; raises if the attempt must not be made.
        """
        self.name = name
        self._server = server
        self._backoff = Backoff.doubling(first_wait_s, LONGEST_WAIT_S, STABLE_AFTER_S)
        self._connect_timeout_s = connect_timeout_s
        self._admit = admit
        self._was_tried = asyncio.Event()
        "Set when the first attempt has succeeded or failed."
        self._has_failed = False
        "True after an attempt has failed."
        self._client: Client | None = None
        self._specs: tuple[ToolSpec, ...] = ()
        self._listed: list[Tool] = []
        "Tools as the server listed them last."
        self._names: Mapping[str, str] = {}
        "Name that the server uses, by the name that models see."
        self._must_list = asyncio.Event()
        "Set when the tools are to be listed again."
        self._has_ended = False
        "True when the server's program has closed its output."
        self._is_refused = False
        "True when the server refused us. No further attempt is made."
        self._asks_for_2026 = True
        """True to ask for the protocol's version of 2026. Servers built with the package of early
        2025 fail at that request, so every second attempt leaves it out, until one succeeds."""
        self._status = 0
        "Status of the last HTTP error of this connection; 0: none."
        self._had_client = False
        "True if the present attempt has led to a connection."
        self._last_line = ""
        "Last line that the server's program wrote to its standard error."
        self._last_reason = ""
        "Reason for which the last connection or attempt ended; empty while connected."

    @property
    def is_connected(self) -> bool:
        """True while the server can be called."""
        return self._client is not None

    @property
    def count(self) -> int:
        """Number of tools that the server offers now."""
        return len(self._specs)

    @property
    def reason(self) -> str:
        """Reason why the server is not connected, without our secrets."""
        return self._last_reason

    async def first_attempt(self) -> None:
        """Waits until the first attempt has succeeded or failed."""
        await self._was_tried.wait()

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        """Returns the tools of the last listing; none while the server is not connected."""
        return self._specs

    def server_name(self, name: str) -> str:
        """Returns the server's own name of a tool. name: the name that models see."""
        return self._names.get(name, name)

    async def call(
        self, name: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolOutcome:
        """Calls a tool of the server. Cancelling this cancels the call at the server."""
        from mcp import MCPError

        client, server_name = self._client, self._names.get(name)
        if client is None or server_name is None:
            return self._unavailable()
        try:
            return tool_outcome(await client.call_tool(server_name, dict(arguments)))
        except MCPError as error:
            # If the server is gone, listing its tools fails as well, and `run` reconnects.
            self._must_list.set()
            if error.code in lost_connection_codes() and not is_bad_stream(error.message):
                return self._unavailable()
            message = self._server.masked(error.message)[:MAX_REASON_CHARS]
            return ToolOutcome({"message": message}, error="tool_failed")

    async def run(self) -> None:
        """Stays connected until cancelled, then stops the server's program. Raises no error.

        It returns when the server refuses us, and at once if it is called again after that.
        """
        await asyncio.to_thread(importlib.import_module, "mcp")  # importing takes half a second
        loop = asyncio.get_running_loop()
        self._backoff.reset()
        while not self._is_refused:
            began_s, self._had_client = loop.time(), False
            try:
                await self._connect()
            except Exception as error:
                # The server is a foreign program. Any error ends only its own connection.
                self._is_refused = is_refusal(error)
                self._log_end(error)
                # An older server may fail at the first request. Then the second attempt decides.
                is_protocol_error = is_protocol_failure(error)
                if self._is_refused or self._has_failed or not is_protocol_error:
                    self._was_tried.set()
                self._has_failed = True
                if is_protocol_error and not self._had_client:
                    self._asks_for_2026 = not self._asks_for_2026
            if is_cancelling():
                # A TaskGroup that ends with errors forgets that its task was cancelled.
                raise asyncio.CancelledError
            if self._is_refused:
                return
            lasted_s = loop.time() - began_s if self._had_client else 0.0
            await asyncio.sleep(self._backoff.fail(lasted_s))

    async def _connect(self) -> None:
        """Connects once, by streamable HTTP or else by SSE. Raises what ends the connection."""
        try:
            await self._connect_by(is_older=False)
        except Exception as newer:
            is_other_way = self._server.url and self._status in NO_STREAMABLE_HTTP
            if self._had_client or not is_other_way or is_cancelling():
                raise
            status = self._status
            try:
                await self._connect_by(is_older=True)
            except Exception as older:
                if self._had_client or is_refusal(older):
                    raise
                self._status = status  # both failed; the first error says more
                raise newer from older

    async def _connect_by(self, *, is_older: bool) -> None:
        from mcp import Client

        if self._admit is not None:
            await self._admit()
        self._must_list.clear()
        self._has_ended, self._status = False, 0
        transport = open_transport(
            self._server, self._on_end, self._on_log_line, self._on_http_error, is_older=is_older
        )
        client = Client(
            transport,
            read_timeout_seconds=max(CONNECT_TIMEOUT_S, self._server.timeout_s),
            message_handler=self._on_message,
            cache=None,
            mode="auto" if self._asks_for_2026 else "legacy",
        )
        # This task alone enters and leaves the client: anyio's cancel scopes demand it.
        async with asyncio.timeout(self._connect_timeout_s or CONNECT_TIMEOUT_S) as limit, client:
            await self._list(client)
            limit.reschedule(None)
            self._client, self._had_client = client, True
            self._last_reason = ""
            self._was_tried.set()
            logger.info("= mcp %s: connected, tools: %d", self.name, len(self._specs))
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._listen(client), name=f"mcp-{self.name}")
                    await self._relist(client)
            finally:
                self._client, self._specs, self._names, self._listed = None, (), {}, []

    async def _relist(self, client: "Client") -> None:
        """Lists the tools whenever they may have changed. Raises an error if the server is gone."""
        while True:
            try:
                async with asyncio.timeout(LIST_EVERY_S):
                    await self._must_list.wait()
            except TimeoutError:
                pass
            self._must_list.clear()
            if self._has_ended:
                raise ConnectionError("the server ended")
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._list(client)

    async def _list(self, client: "Client") -> None:
        found: list[Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None or (self._server.tools is None and len(found) > MAX_TOOLS):
                break
        if found != self._listed:
            self._listed = found
            self._specs, self._names = tool_specs(self.name, self._server, found)

    async def _listen(self, client: "Client") -> None:
        """Subscribes to changes of the tools.

        Servers of 2026 report changes to subscribers. Older ones report them to all clients (see
        `_on_message`), or not at all, so `_relist` lists the tools regularly.
        """
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._must_list.set()
            except ListenNotSupportedError:
                return
            except (SubscriptionLost, MCPError, TimeoutError):
                self._must_list.set()  # changes may have been missed, or the server is gone
            await asyncio.sleep(LISTEN_AGAIN_S)

    async def _on_message(self, message: object) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._must_list.set()

    def _on_end(self) -> None:
        self._has_ended = True
        self._must_list.set()

    def _on_http_error(self, status: int) -> None:
        """Stores an HTTP error. Raises McpAccessDenied if the server refuses us."""
        self._status = status
        # Without this error the library would ask again at once in another way, and then we would.
        # A 403 while connected may concern a single tool, so it does not count.
        if status == 401 or (status == 403 and self._client is None):
            raise McpAccessDenied(f"HTTP {status}")

    def _on_log_line(self, line: str) -> None:
        self._last_line = self._server.masked(line)[:MAX_REASON_CHARS]
        logger.debug("< mcp %s: %s", self.name, self._last_line)

    def _unavailable(self) -> ToolOutcome:
        why = "does not let us in" if self._is_refused else "is not there now"
        message = f"the server {self.name} {why}"
        return ToolOutcome({"message": message}, error="tool_unavailable")

    def _log_end(self, error: Exception) -> None:
        """Logs why the connection ended. Repetitions of a reason are only for debugging, because a
        server may be away for days."""
        from mcp import MCPError

        first = first_error(error)
        cause = "no answer in time" if isinstance(first, TimeoutError) else str(first)
        if self._is_refused:
            cause = f"HTTP {self._status}: it does not let us in, and is not tried again"
        elif isinstance(first, MCPError) and self._status >= 400:  # the library's message says less
            cause = f"HTTP {self._status}" + ": no MCP server is there" * (self._status == 404)
        reason = self._server.masked(cause or type(first).__name__)[:MAX_REASON_CHARS]
        level = logging.DEBUG if reason == self._last_reason else logging.WARNING
        last_line = f"; it last said: {self._last_line}" if self._last_line else ""
        logger.log(level, "! mcp %s: %s%s", self.name, reason, last_line)
        self._last_reason, self._last_line = reason, ""
