"""Opens the MCP server: which tools it offers, and to whom."""

from collections.abc import Collection, Sequence

from core.access.named_key import CALLER_KEY
from core.http.routes import Route
from core.ports import Clock, ToolProvider
from devices.registry.named_keys import NamedKeys
from pipeline.conversation.conversation import Conversations
from pipeline.tools.toolbox import Toolbox
from server.config import Config
from server.config.sections.mcp_server import McpServerConfig
from server.version import product_version
from web.mcp.door import McpDoor
from web.mcp.routes import mcp_routes
from web.mcp.sessions import McpSessions
from web.mcp.tools import OfferedTools


def mcp_tools(
    config: McpServerConfig, house: Sequence[ToolProvider], configured: Sequence[ToolProvider]
) -> Sequence[ToolProvider]:
    """Returns the tools for MCP clients. Tools of the configuration may cost money or belong to one
    person, so clients get them only if `allow` names them."""
    return (*house, *configured) if config.allow else house


def mcp_server_routes(
    config: Config,
    toolbox: Toolbox,
    conversations: Conversations,
    named_keys: NamedKeys,
    clock: Clock,
) -> tuple[Route, ...]:
    """Returns the routes of the MCP server; none if it is off. Sessions of a key end with it."""
    if not config.mcp_server.enabled:
        return ()
    settings = config.mcp_server.as_settings(config.language, product_version())

    def tools_of_caller() -> Collection[str] | None:
        key = CALLER_KEY.get()
        return None if key is None else named_keys.profile_of(key).tools

    tools = OfferedTools(toolbox, conversations, settings, tools_of_caller)
    sessions = McpSessions(clock)
    named_keys.on_revoked.append(sessions.end_all_of)
    return mcp_routes(McpDoor(tools, sessions, settings))
