"""Section `[mcp_server]`: the tools of the house for MCP clients."""

from typing import Annotated

from msgspec import Meta

from server.config.types import Section
from web.mcp.settings import McpDoorSettings

ToolName = Annotated[str, Meta(min_length=1, max_length=64)]


class McpServerConfig(Section, frozen=True):
    """Settings of the MCP server. `[tools.mcp]` is the other direction: servers of others."""

    enabled: Annotated[
        bool,
        Meta(description="Whether MCP clients with a key can use tools of the house at /mcp."),
    ] = False
    allow: Annotated[
        tuple[ToolName, ...],
        Meta(
            title="list of names of tools",
            description=(
                "Tools that clients are offered, also those of [tools]. Empty: home, lists, timers,"
                " clock and announcements. The settings of a key can allow it fewer."
            ),
        ),
    ] = ()
    area: Annotated[
        str,
        Meta(
            max_length=100,
            description=(
                "Room that calls mean if they name none, and whose devices tell that a timer is"
                " over. Empty: no room, and timers of MCP clients are silent."
            ),
        ),
    ] = ""

    def as_settings(self, language: str, version: str) -> McpDoorSettings:
        """Returns the settings in the door's form."""
        return McpDoorSettings(language, version, frozenset(self.allow) or None, self.area)
