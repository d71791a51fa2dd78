"""Settings of the MCP server. The configuration imports them without the server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class McpDoorSettings:
    """Settings of the MCP server."""

    language: str
    "Language of what tools say, ISO 639-1."
    version: str
    "Version of this server."
    allow: frozenset[str] | None = None
    "Names of the tools that are offered; None: all that the toolbox has."
    area: str = ""
    "Room that calls speak of if they name none, and in which their timers ring; empty: none."
