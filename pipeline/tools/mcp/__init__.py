"""Client of MCP servers: each one is a ToolProvider, with tools while its server is connected."""

from pipeline.tools.mcp.client import McpToolProvider, mcp_tools
from pipeline.tools.mcp.settings import McpServerSettings

__all__ = ["McpServerSettings", "McpToolProvider", "mcp_tools"]
