"""Settings of one MCP server, from the section `[tools.mcp.NAME]` of the configuration."""

import re
from typing import Annotated
from urllib.parse import unquote_plus, urlsplit

import msgspec

from core.errors import ConfigError
from pipeline.shared.mcp_servers import ClientMcpServer

HIDDEN = "********"


class McpServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An MCP server: either `command`, a program that we start, or `url`, an address.

    A program is spoken to over its stdin and stdout. An address speaks streamable HTTP or, as in
    2024, HTTP with SSE.
    """

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Environment of the program besides PATH, HOME and the like. Nothing of ours is added. Never
    shown."""
    cwd: str = ""
    url: str = ""
    sse_url: str = ""
    """Address for HTTP with SSE, if it is not `url`. Used where `url` does not speak streamable
    HTTP."""
    headers: dict[str, str] = {}
    "Headers of every request, such as Authorization. Never shown."
    verify_tls: bool = True
    "False to accept any certificate of `url`."
    proxy: str = ""
    """`http://HOST:PORT` of a proxy that connects to `url` and resolves its name. Empty: none, not
    that of the environment either."""
    tools: tuple[str, ...] | None = None
    "Names of the tools that may be used, as the server calls them. Not set: all."
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 10.0
    "Most seconds that one call may take."

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ConfigError("tools.mcp: a server needs either command or url")
        for name in ("url", "sse_url", "proxy"):
            try:
                address = urlsplit(getattr(self, name))
                _ = address.port
            except ValueError as error:
                raise ConfigError(f"tools.mcp: {name} cannot be read: {error}") from None
            if address.geturl() and address.scheme not in ("http", "https"):
                raise ConfigError(f"tools.mcp: {name} must start with http:// or https://")
            if "@" in address.netloc:
                instead = "" if name == "proxy" else ": use headers"
                raise ConfigError(f"tools.mcp: {name} must not contain a user or password{instead}")
        if self.url and (self.args or self.env or self.cwd):
            raise ConfigError(
                "tools.mcp: args, env and cwd are only for servers with command, not url"
            )
        if self.command and (self.headers or self.sse_url or self.proxy):
            raise ConfigError(
                "tools.mcp: headers, sse_url and proxy are only for servers with url, not command"
            )

    def __repr__(self) -> str:
        return f"McpServer({self.command or self.masked(self.url).partition('?')[0]!r})"

    def masked(self, text: str) -> str:
        """Returns a text of or about the server with our secrets replaced by stars."""
        queries = (urlsplit(url).query for url in (self.url, self.sse_url))
        keys = [value for query in queries for part in query.split("&") for value in _both(part)]
        for secret in (*self.env.values(), *self.headers.values(), *keys):
            for part in (secret, *secret.split()[1:]):  # `Bearer abc` may come back as `abc`
                if len(part) >= 4:  # a shorter one is a flag like "1", which occurs in every text
                    text = text.replace(part, HIDDEN)
        return re.sub(r"//[^/@\s]+@", f"//{HIDDEN}@", text)


def client_server_settings(server: ClientMcpServer, timeout_s: float) -> McpServerSettings:
    """Settings of the connection to a server that a client named. `timeout_s`: of one call.

    Raises ConfigError.
    """
    return McpServerSettings(
        url=server.url,
        headers=dict(server.headers),
        tools=server.allowed.names,
        timeout_s=timeout_s,
    )


def _both(part: str) -> tuple[str, str]:
    """Returns the value of one part of a URL's query, as it is written and decoded."""
    value = part.partition("=")[2] or part
    return value, unquote_plus(value)
