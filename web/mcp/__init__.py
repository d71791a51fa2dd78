"""MCP's server side: programs of others use the tools of the house."""
