"""Settings of one MCP server, from the section `[tools.mcp.NAME]` of the configuration."""

import re
from typing import Annotated
from urllib.parse import unquote_plus, urlsplit

import msgspec

from core.errors import ConfigError
from pipeline.shared.mcp_servers import ClientMcpServer

HIDDEN = "********"
"Replacement for a secret in a text."


class McpServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of an MCP server: either `command`, a program that we start, or `url`, an address.

    A program is used over its stdin and stdout, an address over streamable HTTP or, as in 2024,
    HTTP with SSE.
    """

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Environment variables of the program besides PATH, HOME and the like. It gets none of this
    server's. Their values are never shown."""
    cwd: str = ""
    "Folder in which the program runs; empty: that of this server."
    url: str = ""
    sse_url: str = ""
    """Address for HTTP with SSE, if `url` does not support streamable HTTP. Empty: the same as
    `url`."""
    headers: dict[str, str] = {}
    "Headers of every request, such as Authorization. Their values are never shown."
    verify_tls: bool = True
    "False to accept any certificate of `url`."
    proxy: str = ""
    """`http://HOST:PORT` of a proxy that connects to `url` and resolves its name. Empty: no proxy,
    not even that of the environment."""
    tools: tuple[str, ...] | None = None
    "Names of the tools that may be used, in the server's own spelling; None: all."
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 10.0
    "Longest time of one call, in seconds."

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
        """Returns a text from the server, or about it, with secrets replaced by stars."""
        queries = (urlsplit(url).query for url in (self.url, self.sse_url))
        keys = [
            value
            for query in queries
            for part in query.split("&")
            for value in _raw_and_decoded(part)
        ]
        for secret in (*self.env.values(), *self.headers.values(), *keys):
            for part in (secret, *secret.split()[1:]):  # `Bearer abc` may come back as `abc`
                if len(part) >= 4:  # a shorter one is a flag like "1", which occurs in every text
                    text = text.replace(part, HIDDEN)
        return re.sub(r"//[^/@\s]+@", f"//{HIDDEN}@", text)


def client_server_settings(server: ClientMcpServer, timeout_s: float) -> McpServerSettings:
    """Returns the settings for a server that a client named. Raises ConfigError.

    timeout_s: longest time of one call.
    """
    return McpServerSettings(
        url=server.url,
        headers=dict(server.headers),
        tools=server.allowed.names,
        timeout_s=timeout_s,
    )


def _raw_and_decoded(part: str) -> tuple[str, str]:
    """Returns (value as written, decoded value) of one part of a URL's query."""
    value = part.partition("=")[2] or part
    return value, unquote_plus(value)
