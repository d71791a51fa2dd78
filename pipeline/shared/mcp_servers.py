"""Which MCP server a client names, which of its tools may be used, and which need its consent."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.http.fetch_policy import HostAllowlist


@dataclass(frozen=True, slots=True)
class McpToolFilter:
    """What is not said excludes nothing."""

    names: tuple[str, ...] | None = None
    "As the server has them."
    read_only: bool | None = None

    def takes(self, name: str, *, is_read_only: bool) -> bool:
        is_named = self.names is None or name in self.names
        return is_named and self.read_only in (None, is_read_only)


ALL_TOOLS = McpToolFilter()


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """Which tools are called only once the client has allowed the call. Who is named in neither
    filter needs to be allowed; who is in both, too."""

    always: McpToolFilter | None = ALL_TOOLS
    never: McpToolFilter | None = None

    def is_needed(self, name: str, *, is_read_only: bool) -> bool:
        if self.always is not None and self.always.takes(name, is_read_only=is_read_only):
            return True
        return self.never is None or not self.never.takes(name, is_read_only=is_read_only)


ALWAYS = ApprovalPolicy()
NEVER = ApprovalPolicy(None, ALL_TOOLS)

PER_ANSWER = ("headers", "description", "allowed", "approval")
"What an answer may say of a server that it only names by its label."


@dataclass(frozen=True, slots=True)
class ClientMcpServer:
    """One that a client named. Who only repeats its label means the session's."""

    label: str
    url: str = field(default="", repr=False)
    "May hold a key, so it is not shown. Empty: the session's server of this label."
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    description: str = ""
    allowed: McpToolFilter = ALL_TOOLS
    approval: ApprovalPolicy = ALWAYS
    at: str = field(default="", compare=False)
    "Where the client named it, for errors: `tools[2]`."

    left_out: frozenset[str] = field(default=frozenset(), compare=False)
    "Fields of this class of which the client said nothing; see `of_session`."

    def of_session(self, settled: "ClientMcpServer") -> "ClientMcpServer":
        """The session's server of this label, with what the client says of it for one answer."""
        said: dict[str, Any] = {
            name: getattr(self, name) for name in PER_ANSWER if name not in self.left_out
        }
        return replace(settled, at=self.at, **said)

    @property
    def link(self) -> object:
        """Equal for servers that one connection does for."""
        headers = tuple(sorted(self.headers.items()))
        return self.label, self.url, headers, self.allowed.names


@dataclass(frozen=True, slots=True)
class ClientMcpPolicy:
    """What clients may name."""

    hosts: HostAllowlist = field(default_factory=HostAllowlist)
    "None of these: no server at all."
    max_servers: int = 8
    "Connected at once, of one session."
    timeout_s: float = 10.0
    "Of one call."
    connect_timeout_s: float = 10.0
