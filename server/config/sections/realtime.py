"""Sections `[realtime]` and `[prompts]`: the Realtime door and its stored prompts."""

from typing import Annotated

from msgspec import Meta, Struct, field

from core.errors import ConfigError
from core.http.fetch_policy import HostAllowlist
from pipeline.shared.mcp_servers import ClientMcpPolicy
from pipeline.shared.prompts import MAX_CHARS, StoredPrompt

PromptId = Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,64}$")]
PromptVersion = Annotated[str, Meta(min_length=1, max_length=64)]
PromptText = Annotated[str, Meta(min_length=1, max_length=MAX_CHARS)]


class RealtimeConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits for what clients of the Realtime door may ask of this server."""

    mcp_hosts: Annotated[
        tuple[str, ...],
        Meta(
            title="list of names or addresses, with :port if wished",
            description=(
                "Hosts of the MCP servers that a client may name in its tools. Empty: no MCP"
                " servers are allowed."
            ),
        ),
    ] = ()
    mcp_servers: Annotated[
        int,
        Meta(
            ge=1,
            le=32,
            description="Maximum number of MCP servers that one client may use at the same time.",
        ),
    ] = 8
    client_secret_sessions: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="Maximum number of simultaneous sessions of one client secret.",
        ),
    ] = 2
    mcp_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=300,
            description="Seconds that one call of a tool of a client's MCP server may take.",
        ),
    ] = 10.0
    mcp_connect_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=60,
            description=(
                "Seconds that a client's MCP server may take to connect and list its tools."
            ),
        ),
    ] = 10.0

    def as_policy(self) -> ClientMcpPolicy:
        """Returns the settings of MCP servers in a session's form."""
        return ClientMcpPolicy(
            HostAllowlist(self.mcp_hosts),
            self.mcp_servers,
            self.mcp_timeout_s,
            self.mcp_connect_timeout_s,
        )


class PromptConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One stored prompt. A client's value takes the place of `{{name}}` in its text."""

    text: PromptText
    version: PromptVersion = "1"
    "Version of `text`."
    former: dict[PromptVersion, PromptText] = field(default_factory=dict)
    "Older version -> its text, for clients that name that version."

    def __post_init__(self) -> None:
        if self.version in self.former:
            raise ConfigError(f"prompts: version {self.version!r} is in former as well")

    def as_stored(self) -> StoredPrompt:
        """Returns the prompt in the form of the prompt library."""
        return StoredPrompt(self.text, self.version, self.former)
