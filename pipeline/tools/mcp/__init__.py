"""Client of MCP servers: each is a ToolProvider that is there when its server is."""

from pipeline.tools.mcp.client import McpToolProvider, mcp_tools
from pipeline.tools.mcp.settings import McpServerSettings

__all__ = ["McpServerSettings", "McpToolProvider", "mcp_tools"]
