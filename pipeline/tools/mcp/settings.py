"""Which MCP server, and what it may do; from the configuration's `[tools.mcp.NAME]`."""

import re
from typing import Annotated
from urllib.parse import unquote_plus, urlsplit

import msgspec

from core.errors import ConfigError
from pipeline.shared.mcp_servers import ClientMcpServer

HIDDEN = "********"


class McpServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Either `command`, a program that we start and speak to over its stdin and stdout, or `url`,
    where one listens for streamable HTTP, or, in the way of 2024, HTTP with SSE."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    "For the program, beside PATH, HOME and the like; none of our own. Never shown."
    cwd: str = ""
    url: str = ""
    sse_url: str = ""
    "Where it listens for HTTP with SSE, if not at `url`; asked where `url` knows no other way."
    headers: dict[str, str] = {}
    "Sent with every request, e.g. Authorization. Never shown."
    verify_tls: bool = True
    "False: take any certificate that `url` shows."
    proxy: str = ""
    """`http://HOST:PORT` through which `url` is reached, and which resolves its name. Empty: none,
    not the environment's either."""
    tools: tuple[str, ...] | None = None
    "Names, as the server has them, of those that may be used; not set: all."
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 10.0
    "How long one call may take."

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ConfigError("tools.mcp: a server has either command or url")
        for name in ("url", "sse_url", "proxy"):
            try:
                address = urlsplit(getattr(self, name))
                _ = address.port
            except ValueError as error:
                raise ConfigError(f"tools.mcp: {name} cannot be read: {error}") from None
            if address.geturl() and address.scheme not in ("http", "https"):
                raise ConfigError(f"tools.mcp: {name} starts with http:// or https://")
            if "@" in address.netloc:
                instead = "" if name == "proxy" else ": use headers"
                raise ConfigError(f"tools.mcp: {name} holds no user and password{instead}")
        if self.url and (self.args or self.env or self.cwd):
            raise ConfigError("tools.mcp: args, env and cwd go with command, not with url")
        if self.command and (self.headers or self.sse_url or self.proxy):
            raise ConfigError("tools.mcp: headers, sse_url and proxy go with url, not with command")

    def __repr__(self) -> str:
        return f"McpServer({self.command or self.masked(self.url).partition('?')[0]!r})"

    def masked(self, text: str) -> str:
        """Something that came from the server or is about it, without our secrets."""
        queries = (urlsplit(url).query for url in (self.url, self.sse_url))
        keys = [value for query in queries for part in query.split("&") for value in _both(part)]
        for secret in (*self.env.values(), *self.headers.values(), *keys):
            for part in (secret, *secret.split()[1:]):  # `Bearer abc` may come back as `abc`
                if len(part) >= 4:  # a shorter one is a flag like "1", and in every text
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
    """The value in a URL's query as it is written there, and as it is meant."""
    value = part.partition("=")[2] or part
    return value, unquote_plus(value)
