"""Client of MCP servers: each is a ToolProvider that is there when its server is."""

from pipeline.mcp.connection import McpTools, mcp_tools
from pipeline.mcp.settings import McpServer

__all__ = ["McpServer", "McpTools", "mcp_tools"]
