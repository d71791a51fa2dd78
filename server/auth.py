"""Who may use the server: the key, foreign Origins, unknown Hosts. Pure; app.py feeds it requests.

No key is needed from this machine itself. Everything else needs one, and is refused before
routing, so that an outsider cannot even learn which paths exist.
"""

from dataclasses import dataclass, field
from hmac import compare_digest
from urllib.parse import urlsplit

from core.errors import Forbidden, Unauthorized
from server.net import address_of, host_name, is_loopback

SUBPROTOCOL_PREFIX = "openai-insecure-api-key."
"How a browser's WebSocket carries a key: it cannot set headers."

ANY = "*"


@dataclass(frozen=True, slots=True)
class Caller:
    """What a request says about where it comes from."""

    host: str | None
    "The Host header; browsers always send it."
    origin: str | None = None
    scheme: str = "http"
    token: str | None = field(default=None, repr=False)
    is_forwarded: bool = False
    "A proxy's headers are there: it is local, but its client need not be."


@dataclass(frozen=True, slots=True)
class Access:
    """What the gate found."""

    is_trusted: bool
    "Holds the key, or needs none."
    cors_origin: str | None = None
    "A foreign Origin that may read the answer."


@dataclass(frozen=True, slots=True)
class Gate:
    """The rules of one listener."""

    is_local: bool
    "Bound to loopback only."
    key: str | None = field(repr=False)
    hosts: frozenset[str] = frozenset()
    "Names this server goes by, beside localhost and IP addresses."
    origins: frozenset[str] = frozenset({ANY})
    "Foreign origins that may come with the key."

    def admit(self, caller: Caller, *, is_public: bool) -> Access:
        """Raises Forbidden (`forbidden_host`, `forbidden_origin`) or Unauthorized."""
        name = self._check_host(caller)
        is_foreign = caller.origin is not None and not _is_same_origin(caller)
        needs_key = (
            not self.is_local
            or is_foreign
            or caller.is_forwarded
            or not (name is None or is_loopback(name))
        )
        has_key = self._is_key(caller.token)
        if is_public and not has_key:
            return Access(is_trusted=not needs_key)
        if is_foreign and not self.allows_origin(caller.origin or ""):
            raise Forbidden(
                f"this site ({caller.origin}) is not in server.allowed_origins",
                code="forbidden_origin",
            )
        if needs_key and not has_key:
            raise Unauthorized(self._why(caller))
        return Access(is_trusted=True, cors_origin=caller.origin if is_foreign else None)

    def allows_origin(self, origin: str) -> bool:
        """Whether a site may come with the key."""
        return ANY in self.origins or origin in self.origins

    def _check_host(self, caller: Caller) -> str | None:
        """A page elsewhere can point its own name at us (DNS rebinding), but never an address."""
        if caller.host is None:
            return None
        name = host_name(caller.host)
        if name is not None and (
            name in self.hosts or is_loopback(name) or address_of(name) is not None
        ):
            return name
        raise Forbidden(
            f"unknown Host {caller.host[:100]!r}; add it to server.allowed_hosts if it is ours",
            code="forbidden_host",
        )

    def _is_key(self, token: str | None) -> bool:
        if not self.key or token is None:
            return False
        return compare_digest(token.encode("utf-8", "replace"), self.key.encode())

    def _why(self, caller: Caller) -> str:
        if caller.token is not None and self.key:
            return "the key is wrong; the right one is in api-key in the server's state folder"
        if self.key:
            return "a key is needed: send the header 'Authorization: Bearer <key>'"
        return "a key is needed from there, and the server has none yet: set EARSHOT_API_KEY"


def token_of(authorization: str | None, subprotocols: str | None) -> str | None:
    """The key that a request carries in its Authorization header or WebSocket subprotocols."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    for part in (subprotocols or "").split(","):
        if part.strip().startswith(SUBPROTOCOL_PREFIX):
            return part.strip().removeprefix(SUBPROTOCOL_PREFIX)
    return None


def _is_same_origin(caller: Caller) -> bool:
    """Origin and Host name the same scheme, host and port."""
    try:
        origin = urlsplit(caller.origin or "")
        host = urlsplit(f"{caller.scheme}://{caller.host}")
        default = {"http": 80, "https": 443}.get(caller.scheme)
        return (origin.scheme, origin.hostname, origin.port or default) == (
            caller.scheme,
            host.hostname,
            host.port or default,
        )
    except ValueError:
        return False
