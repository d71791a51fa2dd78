"""What a session tells of the MCP servers that its client named. Part of `core.events`."""

from dataclasses import dataclass
from typing import Literal

McpProgress = Literal["in_progress", "completed", "failed"]


@dataclass(frozen=True, slots=True)
class McpListToolsProgress:
    """Of a server's tools."""

    item_id: str
    stage: McpProgress


@dataclass(frozen=True, slots=True)
class McpCallArgumentsDelta:
    """More of the arguments of a call; together they are the item's."""

    response_id: str
    item_id: str
    output_index: int
    delta: str


@dataclass(frozen=True, slots=True)
class McpCallProgress:
    """Between OutputItemAdded and OutputItemDone. In progress: its arguments are whole."""

    response_id: str
    item_id: str
    output_index: int
    stage: McpProgress
    arguments: str
