"""Connects one session to the MCP servers that its client named, and collects their tools."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Protocol

from core.conversation.events import (
    ErrorEvent,
    ItemAdded,
    ItemDone,
    McpListToolsProgress,
    SessionEvent,
)
from core.conversation.ids import new_id
from core.conversation.items import McpListItem
from core.errors import ConfigError, NotFound, RequestError
from core.http.fetch_policy import FetchTarget, HostAllowlist, UrlNotAllowed, parse_fetch_target
from core.ports import ToolContext, ToolSpec
from pipeline.shared.mcp_servers import ClientMcpPolicy, ClientMcpServer
from pipeline.shared.settings import ResponseRequest
from pipeline.tools.mcp import McpToolProvider
from pipeline.tools.mcp.approvals import Approvals
from pipeline.tools.mcp.settings import client_server_settings
from pipeline.tools.mcp.tool import (
    MAX_TOOLS,
    ApprovalDecision,
    ClientMcpTool,
    client_tools_of,
    tool_definitions,
)

NO_USER = ToolContext("", "")
"Context for listing the tools of a server, which are the same for all users."

SETTING = "realtime.mcp_hosts"
"Name of the setting with the allowed hosts, for errors."

FIRST_WAIT_S = 0.1
"Wait before the second attempt to connect. It is short, because a response may wait for the tools."


@dataclass(slots=True)
class _McpLink:
    """One connection to a server, or the attempt to connect."""

    server: ClientMcpServer
    tools: McpToolProvider
    item: McpListItem
    "Item of the history that lists the tools."
    previous_item_id: str | None = None
    is_reported: asyncio.Event = field(default_factory=asyncio.Event)
    "Set when the success or failure of the connection has been reported to the client."
    task: asyncio.Task[None] | None = None
    known_tools: tuple[Sequence[ToolSpec], ClientMcpServer, tuple[ClientMcpTool, ...]] | None = None
    """(specifications, server, tools made from both). The tools are made again when a specification
    or the server changes."""


class McpListHistory(Protocol):
    """The part of `pipeline.conversation.history.History` that keeps lists of tools as items."""

    def add(self, item: McpListItem) -> str | None:
        """Adds the item at the end and returns the id of the item before it."""

    def replace(self, item: McpListItem) -> None:
        """Replaces the item with the same id."""


class SessionMcpServers:
    """Connections of one session to the MCP servers that its client named.

    A server that cannot be reached is reported once; the next attempt is made when the client names
    it again. A connection that is lost later is restored automatically.

    policy: limits and allowed hosts. emit: sends an event to the client.
    """

    def __init__(
        self, policy: ClientMcpPolicy, history: McpListHistory, emit: Callable[[SessionEvent], None]
    ) -> None:
        self.approvals = Approvals()
        self._policy, self._history, self._emit = policy, history, emit
        self._links: dict[object, _McpLink] = {}
        "Connections by the key of their server (`ClientMcpServer.connection_key`)."
        self._session_servers: tuple[ClientMcpServer, ...] = ()
        "Servers in the settings of the session. Other servers belong to single responses."
        self._tasks: asyncio.TaskGroup | None = None

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Connects the servers of the session. tasks: group in which the connections run."""
        self._tasks = tasks
        self._connect(self._session_servers)

    def configure(self, servers: tuple[ClientMcpServer, ...]) -> None:
        """Replaces the servers of the session. If it raises RequestError, nothing has changed."""
        if servers == self._session_servers:
            self._connect(servers)
            return
        self.check(servers)
        new_keys, old_keys = (
            {server.connection_key for server in some} for some in (servers, self._session_servers)
        )
        for key in old_keys - new_keys:
            self._drop(key)
        self._session_servers = servers
        for key in new_keys - old_keys:
            if (link := self._links.get(key)) is not None and link.is_reported.is_set():
                self._report_again(link)
        self._connect(servers)

    def check(self, servers: Sequence[ClientMcpServer]) -> None:
        """Checks servers before they are connected.

        Raises RequestError mcp_not_available, mcp_server_refused, too_many_mcp_servers.
        """
        if not servers:
            return
        if find_spec("mcp") is None:
            raise RequestError(
                "MCP servers cannot be used: the package mcp is not installed on this server.",
                code="mcp_not_available",
                param=servers[0].param,
            )
        if len(servers) > self._policy.max_servers:
            raise _too_many(len(servers), servers[0], self._policy)
        for server in servers:
            try:
                _admitted(server, self._policy.hosts)
                client_server_settings(server, self._policy.timeout_s)
            except (UrlNotAllowed, ConfigError) as why:
                raise RequestError(
                    f"The MCP server {server.label!r} is refused: {why}.",
                    code="mcp_server_refused",
                    param=f"{server.param}.server_url",
                ) from None

    def resolved(self, servers: Sequence[ClientMcpServer]) -> tuple[ClientMcpServer, ...]:
        """Returns the servers of a response with all settings.

        A server that has only a label stands for the session's server of that label.
        Raises RequestError as `check`, and NotFound mcp_server_not_found.
        """
        by_label = {server.label: server for server in self._session_servers}
        full: list[ClientMcpServer] = []
        for server in servers:
            known = by_label.get(server.label)
            if not server.url and known is None:
                raise NotFound(
                    f"The session has no MCP server {server.label!r}: send its server_url.",
                    code="mcp_server_not_found",
                    param=f"{server.param}.server_label",
                )
            full.append(server.of_session(known) if known and not server.url else server)
        self.check(full)
        links = {server.connection_key for server in (*full, *self._session_servers)}
        if full and len(links) > self._policy.max_servers:
            raise _too_many(len(links), full[0], self._policy, "with those of the session, ")
        return tuple(full)

    async def ready(self, servers: Sequence[ClientMcpServer]) -> None:
        """Connects the servers and waits until each is connected or has failed."""
        self._connect(servers)
        for server in servers:
            if (link := self._links.get(server.connection_key)) is not None:
                await link.is_reported.wait()

    def tools(self, servers: Sequence[ClientMcpServer]) -> list[ClientMcpTool]:
        """Returns the tools of those servers that are connected now."""
        found: list[ClientMcpTool] = []
        for server in servers:
            link = self._links.get(server.connection_key)
            if link is not None and link.tools.is_connected:
                found += _tools(link, server)
        return found

    def _connect(self, servers: Sequence[ClientMcpServer]) -> None:
        if self._tasks is None:
            return
        for server in servers:
            if server.connection_key in self._links:
                continue
            self._make_room(servers)
            link = self._links[server.connection_key] = self._new(server)
            self._begin(link)
            link.task = self._tasks.create_task(self._run(link), name=f"mcp-{server.label}")

    def _new(self, server: ClientMcpServer) -> _McpLink:
        policy = self._policy

        async def admit() -> None:
            try:
                target = _admitted(server, policy.hosts)
                if not _is_address(target.host):
                    await policy.hosts.check_address(target)
            except UrlNotAllowed as why:
                raise RequestError(f"{why}", code="mcp_server_refused") from None

        tools = McpToolProvider(
            server.label,
            client_server_settings(server, policy.timeout_s),
            first_wait_s=FIRST_WAIT_S,
            connect_timeout_s=policy.connect_timeout_s,
            admit=admit,
        )
        return _McpLink(server, tools, McpListItem(new_id("mcpl"), server.label))

    def _make_room(self, wanted: Sequence[ClientMcpServer]) -> None:
        """Drops the oldest connection that only an earlier response needed, if the limit is
        reached."""
        if len(self._links) < self._policy.max_servers:
            return
        kept = {server.connection_key for server in (*self._session_servers, *wanted)}
        for key in [key for key in self._links if key not in kept][:1]:
            self._drop(key)

    def _drop(self, key: object) -> None:
        link = self._links.pop(key, None)
        if link is not None and link.task is not None:
            link.task.cancel()
            if not link.is_reported.is_set():
                self._report(link, "it is not wanted any more")

    async def _run(self, link: _McpLink) -> None:
        """Connects and reports the result. After a success, stays connected until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(link.tools.run(), name=f"mcp-{link.server.label}-run")
            await link.tools.first_attempt()
            if link.tools.is_connected:
                link.item = replace(link.item, tools=tool_definitions(_tools(link, link.server)))
                self._report(link)
            else:
                running.cancel()
                self._report(link, link.tools.reason)
        # The server cannot be reached or refuses us. The next attempt is made when the client names
        # it again.
        self._links = {key: known for key, known in self._links.items() if known is not link}

    def _report_again(self, link: _McpLink) -> None:
        """Reports the tools of a server again, because the session now has it too, not only a
        response."""
        link.item = McpListItem(new_id("mcpl"), link.server.label)
        self._begin(link)
        link.item = replace(link.item, tools=tool_definitions(_tools(link, link.server)))
        self._report(link)

    def _begin(self, link: _McpLink) -> None:
        link.previous_item_id = self._history.add(link.item)
        self._emit(ItemAdded(link.item, link.previous_item_id))
        self._emit(McpListToolsProgress(link.item.id, "in_progress"))

    def _report(self, link: _McpLink, failure: str = "") -> None:
        self._history.replace(link.item)
        self._emit(McpListToolsProgress(link.item.id, "failed" if failure else "completed"))
        self._emit(ItemDone(link.item, link.previous_item_id))
        if failure:
            what = f"the MCP server {link.server.label!r} is not there: {failure}"
            self._emit(ErrorEvent("mcp_list_tools_failed", what))
        else:
            self._warn_of_limit(link)
        link.is_reported.set()

    def _warn_of_limit(self, link: _McpLink) -> None:
        """Sends an error event if the session's servers have more than MAX_TOOLS tools."""
        others = [
            server
            for server in self._session_servers
            if server.connection_key != link.server.connection_key
        ]
        count = len(self.tools([*others, link.server]))
        if count > MAX_TOOLS:
            what = (
                f"The MCP servers have {count} tools, and a model is offered {MAX_TOOLS} at most: "
                f"{count - MAX_TOOLS} are left out. Name the useful ones in allowed_tools."
            )
            self._emit(ErrorEvent("too_many_mcp_tools", what))


def _tools(link: _McpLink, server: ClientMcpServer) -> tuple[ClientMcpTool, ...]:
    specs = link.tools.tools(NO_USER)
    if (
        link.known_tools is None
        or link.known_tools[0] is not specs
        or link.known_tools[1] != server
    ):
        named = [(spec, link.tools.server_name(spec.name)) for spec in specs]
        link.known_tools = specs, server, client_tools_of(server, link.tools, named)
    return link.known_tools[2]


def _too_many(
    count: int, first: ClientMcpServer, policy: ClientMcpPolicy, which: str = ""
) -> RequestError:
    return RequestError(
        f"{which}{count} MCP servers; the limit is {policy.max_servers}.",
        code="too_many_mcp_servers",
        param=first.param.partition("[")[0],
    )


def _admitted(server: ClientMcpServer, hosts: HostAllowlist) -> FetchTarget:
    """Returns the server's address if its host is allowed. Raises UrlNotAllowed."""
    target = parse_fetch_target(server.url)
    if not hosts:
        raise UrlNotAllowed(
            f"clients cannot name MCP servers, because the setting {SETTING} is empty"
        )
    if not hosts.has(target):
        raise UrlNotAllowed(f"its host is not in {SETTING} of the configuration")
    return target


def _is_address(host: str) -> bool:
    """Returns True if the host is an IP address or `localhost`.

    The operator allowed exactly this address. A host name needs a further check of its address.
    """
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


@dataclass(frozen=True, slots=True)
class SessionMcpOffer:
    """The MCP servers of one response. Equal offers lead to the same tools."""

    servers: SessionMcpServers
    "Connections of the session."
    named: tuple[ClientMcpServer, ...]
    "Servers of this response."
    request: ResponseRequest
    "Request of the response."

    @property
    def approved(self) -> tuple[ApprovalDecision, ...]:
        """Decisions about calls. The calls are run or denied before the model generates."""
        return self.request.approved

    async def ready(self) -> None:
        """Waits until the servers that the response itself named are connected or have failed."""
        # A server of the session delays no response.
        if self.request.mcp_servers is not None:
            await self.servers.ready(self.named)

    def tools(self) -> list[ClientMcpTool]:
        """Returns the tools of the servers that are connected now."""
        # An out-of-band response has no conversation in which the client could approve a call.
        may_ask = self.request.in_conversation
        tools = self.servers.tools(self.named)
        return [tool for tool in tools if may_ask or not tool.needs_approval]
