"""Where a Realtime server is, and how a client is let in."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from core.errors import RequestError

DEFAULT_URL = "http://127.0.0.1:8080"

KEY_VARIABLES = ("EARSHOT_KEY", "EARSHOT_API_KEY")
"The second is the server's own setting: on its machine one variable serves both."

_SCHEMES: Mapping[str, str] = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


@dataclass(frozen=True, slots=True)
class Address:
    """A server's base URL without a trailing slash, and the key for it."""

    url: str = DEFAULT_URL
    key: str | None = field(default=None, repr=False)
    is_insecure: bool = False
    "Take any certificate: for a server's self-made one."

    def realtime(self, path: str = "", **query: str) -> str:
        """The URL of /v1/realtime or of what lies below it."""
        tail = f"?{urlencode(query)}" if query else ""
        return f"{self.url}/v1/realtime{path}{tail}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def ssl(self) -> ssl.SSLContext | bool:
        """What aiohttp takes as `ssl`."""
        return not self.is_insecure


def parse_address(url: str, key: str | None = None, *, is_insecure: bool = False) -> Address:
    """Takes also what the server prints (`https://host:8443/#key=...`) and a base ending in /v1.

    Raises RequestError for what is no address.
    """
    wrong = RequestError(f"{url!r} is no address; one looks like {DEFAULT_URL}", code="invalid_url")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        scheme = _SCHEMES[parts.scheme.lower()]
        if not parts.hostname or parts.port == 0:
            raise wrong
    except (KeyError, ValueError):
        raise wrong from None
    key = key or parse_qs(parts.fragment).get("key", [None])[0]
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Address(urlunsplit((scheme, parts.netloc, path, "", "")), key, is_insecure)
