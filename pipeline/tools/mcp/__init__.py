"""Client of MCP servers: a ToolProvider for each, which has tools while its server is connected."""

from pipeline.tools.mcp.client import McpToolProvider, mcp_tools
from pipeline.tools.mcp.settings import McpServerSettings

__all__ = ["McpServerSettings", "McpToolProvider", "mcp_tools"]
