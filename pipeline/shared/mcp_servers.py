"""MCP servers that a client names: which of their tools may be used, and which need the client's
approval."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.http.fetch_policy import HostAllowlist


@dataclass(frozen=True, slots=True)
class McpToolFilter:
    """Filter of a server's tools. A field that is None excludes nothing."""

    names: tuple[str, ...] | None = None
    "Names of the tools, as the server has them."
    read_only: bool | None = None
    "True: only read-only tools. False: only tools that change something. None: both."

    def matches(self, name: str, *, is_read_only: bool) -> bool:
        """Returns whether the filter takes this tool."""
        is_named = self.names is None or name in self.names
        return is_named and self.read_only in (None, is_read_only)


ALL_TOOLS = McpToolFilter()


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """Policy for the client's approval of tool calls. A tool in neither filter needs it, and so
    does a tool in both."""

    always: McpToolFilter | None = ALL_TOOLS
    never: McpToolFilter | None = None

    def is_needed(self, name: str, *, is_read_only: bool) -> bool:
        """Returns whether calls of this tool need approval."""
        if self.always is not None and self.always.matches(name, is_read_only=is_read_only):
            return True
        return self.never is None or not self.never.matches(name, is_read_only=is_read_only)


ALWAYS = ApprovalPolicy()
NEVER = ApprovalPolicy(None, ALL_TOOLS)

PER_ANSWER = ("headers", "description", "allowed", "approval")
"Fields that one response may change for a server that it names only by its label."


@dataclass(frozen=True, slots=True)
class ClientMcpServer:
    """MCP server that a client named. One with only a label refers to the session's server of that
    label."""

    label: str
    url: str = field(default="", repr=False)
    "URL. May hold a key, so it is not shown. Empty: the session's server of this label."
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    description: str = ""
    allowed: McpToolFilter = ALL_TOOLS
    approval: ApprovalPolicy = ALWAYS
    param: str = field(default="", compare=False)
    "Place in the client's request, for errors: `tools[2]`."

    omitted_fields: frozenset[str] = field(default=frozenset(), compare=False)
    "Fields of this class that the client left out; see `of_session`."

    def of_session(self, session_server: "ClientMcpServer") -> "ClientMcpServer":
        """Returns the session's server of this label, with what the client changed for one
        response."""
        changes: dict[str, Any] = {
            name: getattr(self, name) for name in PER_ANSWER if name not in self.omitted_fields
        }
        return replace(session_server, param=self.param, **changes)

    @property
    def connection_key(self) -> object:
        """Key of the connection: equal for servers that can share one."""
        headers = tuple(sorted(self.headers.items()))
        return self.label, self.url, headers, self.allowed.names


@dataclass(frozen=True, slots=True)
class ClientMcpPolicy:
    """Limits on the MCP servers that clients may name."""

    hosts: HostAllowlist = field(default_factory=HostAllowlist)
    "Hosts of allowed servers. Empty: no server is allowed."
    max_servers: int = 8
    "Most servers that one session may have connected at once."
    timeout_s: float = 10.0
    "Limit of one tool call in seconds."
    connect_timeout_s: float = 10.0
    "Limit of one connection attempt in seconds."
