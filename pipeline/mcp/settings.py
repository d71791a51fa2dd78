"""Which MCP server, and what it may do; from the configuration's `[tools.mcp.NAME]`."""

import re
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from core.errors import ConfigError

HIDDEN = "********"


class McpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Either `command`, a program that we start and speak to over its stdin and stdout, or `url`,
    where one listens for streamable HTTP."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    "For the program, beside PATH, HOME and the like; none of our own. Never shown."
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    "Sent with every request, e.g. Authorization. Never shown."
    verify_tls: bool = True
    "False: take any certificate that `url` shows."
    tools: tuple[str, ...] | None = None
    "Names, as the server has them, of those that may be used; not set: all."
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 10.0
    "How long one call may take."

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ConfigError("tools.mcp: a server has either command or url")
        if self.url and urlsplit(self.url).scheme not in ("http", "https"):
            raise ConfigError("tools.mcp: url starts with http:// or https://")
        if "@" in urlsplit(self.url).netloc:
            raise ConfigError("tools.mcp: url holds no user and password: use headers")
        if self.url and (self.args or self.env or self.cwd):
            raise ConfigError("tools.mcp: args, env and cwd go with command, not with url")
        if self.command and self.headers:
            raise ConfigError("tools.mcp: headers go with url, not with command")

    def __repr__(self) -> str:
        return f"McpServer({self.command or self.masked(self.url)!r})"

    def masked(self, text: str) -> str:
        """Something that came from the server or is about it, without our secrets."""
        for secret in (*self.env.values(), *self.headers.values()):
            if len(secret) >= 4:  # a shorter one is a flag like "1", and in every text
                text = text.replace(secret, HIDDEN)
        return re.sub(r"//[^/@\s]+@", f"//{HIDDEN}@", text)
