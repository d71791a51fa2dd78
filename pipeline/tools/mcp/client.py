"""One MCP server: connected in the background, and reconnected whenever the connection is lost."""

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from core.errors import ConfigError, first_error
from core.ports import ToolContext, ToolOutcome, ToolSpec
from core.tasks import Backoff
from pipeline.tools.mcp.errors import (
    gone_codes,
    is_bad_stream,
    is_broken_off,
    is_cancelling,
    is_refusal,
)
from pipeline.tools.mcp.schema import MAX_TOOLS, tool_outcome, tool_specs
from pipeline.tools.mcp.settings import McpServerSettings
from pipeline.tools.mcp.transport import McpAccessDenied, open_transport

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 60.0
"Seconds for connecting. `uvx` and `npx` download a server before they start it the first time."

LIST_EVERY_S = 60.0
"""Seconds between two listings of the tools. Finds new tools of servers that do not report them,
and servers that went away silently."""

LISTEN_AGAIN_S = 5.0
"Seconds until changes are subscribed again: proxies close streams on which nothing happens."

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
"""FIRST_WAIT_S and LONGEST_WAIT_S: first and longest wait between two attempts to connect, in
seconds. The wait is doubled each time."""

LASTED_S = 10.0
"A connection that lasted this many seconds was good: the wait starts at FIRST_WAIT_S again."

NO_STREAMABLE_HTTP = (400, 404, 405)
"HTTP status of a server that knows only HTTP with SSE (MCP 2025-03-26, backwards compatibility)."

MAX_REASON_CHARS = 300
MAX_PAGES = 20


def mcp_tools(servers: Mapping[str, McpServerSettings]) -> tuple["McpToolProvider", ...]:
    """Returns a provider for each server.

    Its `run` connects. Raises ConfigError without the library.
    """
    if servers and find_spec("mcp") is None:
        raise ConfigError("tools.mcp: the package mcp is not installed: `earshot extras add mcp`")
    return tuple(McpToolProvider(name, server) for name, server in servers.items())


class McpToolProvider:
    """ToolProvider of one MCP server. It has no tools while the server is not connected."""

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

        admit: awaited before each attempt; raises if it must not be made.
        """
        self.name = name
        self._server = server
        self._backoff = Backoff.doubling(first_wait_s, LONGEST_WAIT_S, LASTED_S)
        self._connect_timeout_s = connect_timeout_s
        self._admit = admit
        self._was_tried = asyncio.Event()
        "Set when the first attempt has succeeded or failed."
        self._has_failed = False
        "True once an attempt has failed."
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
        "True when the server refused us. Then it is not tried again."
        self._asks_first = True
        """True to ask for the protocol's version of 2026 first. Servers built with the package of
        early 2025 break on that question, so every second attempt goes without, until one
        succeeds."""
        self._status = 0
        "Status of the last HTTP error of this connection; 0: none."
        self._had_client = False
        "True if the present attempt got as far as a connection."
        self._last_line = ""
        self._last_reason = ""

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

    async def tried(self) -> None:
        """Waits until the first attempt has succeeded or failed."""
        await self._was_tried.wait()

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        """Returns the tools as of the last listing; none while the server is not connected."""
        return self._specs

    def server_name(self, name: str) -> str:
        """Returns the name that the server uses for a tool."""
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
            # if the server is gone, listing its tools will fail as well, and it is reconnected
            self._must_list.set()
            if error.code in gone_codes() and not is_bad_stream(error.message):
                return self._unavailable()
            message = self._server.masked(error.message)[:MAX_REASON_CHARS]
            return ToolOutcome({"message": message}, error="tool_failed")

    async def run(self) -> None:
        """Stays connected until cancelled, then stops the server's program. Never raises.

        Returns when the server refuses us, and at once whenever it is called again after that.
        """
        await asyncio.to_thread(importlib.import_module, "mcp")  # importing takes half a second
        loop = asyncio.get_running_loop()
        self._backoff.reset()
        while not self._is_refused:
            began_s, self._had_client = loop.time(), False
            try:
                await self._connect()
            except Exception as error:
                # The server is a foreign program: whatever it did, only its own connection ends.
                self._is_refused = is_refusal(error)
                self._log_end(error)
                # An older server may break on the first way of asking. The second attempt decides.
                is_odd = is_broken_off(error)
                if self._is_refused or self._has_failed or not is_odd:
                    self._was_tried.set()
                self._has_failed = True
                if is_odd and not self._had_client:
                    self._asks_first = not self._asks_first
            if is_cancelling():
                # a TaskGroup that ends with errors forgets the cancellation
                raise asyncio.CancelledError
            if self._is_refused:
                return
            lasted_s = loop.time() - began_s if self._had_client else 0.0
            await asyncio.sleep(self._backoff.fail(lasted_s))

    async def _connect(self) -> None:
        """Makes one connection, by streamable HTTP or else by SSE. Raises whatever ends it."""
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
                self._status = status  # neither way works: the first one's error says more
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
            mode="auto" if self._asks_first else "legacy",
        )
        # Entered and left by this task alone: anyio's cancel scopes do not allow anything else.
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
        """Lists the tools whenever they may have changed. Raises when the server is gone."""
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

        Servers of 2026 report changes on request, older ones unasked (see `_on_message`). For those
        that do neither, `_relist` lists the tools regularly.
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
        """Notes an HTTP error. Raises McpAccessDenied if the server refuses us.

        Otherwise the library would ask again at once in another way, and then we would. A 403 while
        connected may concern a single tool, so it does not count.
        """
        self._status = status
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
        """Logs why the connection ended, once for each reason: a server may be away for days."""
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
