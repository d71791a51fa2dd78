"""Client of MCP servers: each is a ToolProvider that is there when its server is."""

from pipeline.tools.mcp.client import McpTools, mcp_tools
from pipeline.tools.mcp.settings import McpServer

__all__ = ["McpServer", "McpTools", "mcp_tools"]
