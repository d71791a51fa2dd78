"""Converts MCP tools and results into ours, and limits their size. Pure."""

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.ports import ToolOutcome, ToolSpec
from pipeline.tools.mcp.settings import McpServerSettings

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

logger = logging.getLogger(__name__)

MAX_TOOLS = 64
"Most tools of one server. Models choose badly among more, and read each one in every turn."

MAX_SCHEMA_CHARS = 8000
"Most characters of one tool's schema, as JSON."

MAX_DESCRIPTION_CHARS = 1000
"Most characters of one tool's description."
MAX_NAME_CHARS = 64
"Most characters of a name in OpenAI's API."
MAX_SERVER_NAME_CHARS = 256
"Most characters of the server's own name of a tool. MCP advises 128 (2025-11-25, tools)."

FORBIDDEN_NAME_CHARS = re.compile(r"[^A-Za-z0-9_-]")
"Characters that OpenAI's API does not allow in names. MCP allows dots and slashes."

MAX_TEXT_CHARS = 100_000
"Most characters of a result's text. Later steps cut it further for the model."


def tool_specs(
    server_name: str, server: McpServerSettings, tools: Iterable["Tool"]
) -> tuple[tuple[ToolSpec, ...], Mapping[str, str]]:
    """Returns (tools that may be used, our name of a tool -> the server's own name)."""
    wanted = [t for t in tools if server.tools is None or t.name in server.tools]
    if len(wanted) > MAX_TOOLS:
        logger.warning(
            "mcp %s: %d tools, the first %d are used; name the useful ones under tools",
            server_name,
            len(wanted),
            MAX_TOOLS,
        )
    found: list[ToolSpec] = []
    names: dict[str, str] = {}
    for tool in wanted[:MAX_TOOLS]:
        spec = _spec(server_name, server, tool)
        if spec is not None and spec.name not in names:
            found.append(spec)
            names[spec.name] = tool.name
    return tuple(found), names


def _spec(server_name: str, server: McpServerSettings, tool: "Tool") -> ToolSpec | None:
    name = FORBIDDEN_NAME_CHARS.sub("_", tool.name)[:MAX_NAME_CHARS]
    size = len(json.dumps(tool.input_schema))
    if not name or len(tool.name) > MAX_SERVER_NAME_CHARS or size > MAX_SCHEMA_CHARS:
        problem = f"a schema of {size} characters, at most {MAX_SCHEMA_CHARS}"
        if size <= MAX_SCHEMA_CHARS:
            problem = f"a name of {len(tool.name)} characters, 1 to {MAX_SERVER_NAME_CHARS}"
        logger.warning("mcp %s: a tool is left out: %r has %s", server_name, name, problem)
        return None
    description = tool.description or tool.title or name
    annotations = tool.annotations
    return ToolSpec(
        name,
        description[:MAX_DESCRIPTION_CHARS],
        {"properties": {}, **tool.input_schema, "type": "object"},
        is_read_only=annotations is not None and annotations.read_only_hint is True,
        timeout_s=server.timeout_s,
        fallback_name=f"{server_name}_{name}"[:MAX_NAME_CHARS],
    )


def tool_outcome(result: "CallToolResult") -> ToolOutcome:
    """Returns a result's structured content, or else its texts. Images and audio are counted."""
    texts, left_out = _read(result.content)
    data: dict[str, object]
    if result.is_error:
        return ToolOutcome({"message": texts or "it failed"}, error="tool_failed")
    if isinstance(result.structured_content, Mapping):
        data = dict(result.structured_content)
    else:
        data = {"text": texts} if texts or not left_out else {}
    if left_out:
        data["left_out"] = left_out
    return ToolOutcome(data)


def _read(blocks: Sequence[Any]) -> tuple[str, str]:
    """Returns (texts, numbers of all other blocks, such as `1 image, 2 audio`)."""
    texts: list[str] = []
    others: Counter[str] = Counter()
    for block in blocks:
        match block.type:
            case "text":
                texts.append(block.text)
            case "resource" if isinstance(getattr(block.resource, "text", None), str):
                texts.append(block.resource.text)
            case "resource_link":
                texts.append(str(block.uri))
            case kind:
                others[kind] += 1
    left_out = ", ".join(f"{count} {kind}" for kind, count in others.items())
    return "\n".join(texts)[:MAX_TEXT_CHARS], left_out
