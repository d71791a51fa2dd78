"""MCP servers that a client names, for its session or for one answer; ours are in `[tools.mcp]`."""
