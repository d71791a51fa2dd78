"""Access rules: keys, their scopes, foreign Origins and unknown Hosts. This file does no I/O;
access.py calls it.

No key is needed from this machine itself, unless the configuration asks for it. Every other request
needs one. It is refused before routing, so that an outsider cannot even learn which paths exist.
The server's own key opens everything, a named key what its scopes say.
Only a browser's preflight, which cannot carry a key, shows that WHIP's paths exist.
"""

import binascii
from base64 import b64decode
from dataclasses import dataclass, field
from hmac import compare_digest
from urllib.parse import urlsplit

from core.access.named_key import KeyScope, NamedKey
from core.errors import Forbidden, Unauthorized
from core.http.routes import TokenCheck
from devices.registry.named_keys import PREFIX as NAMED_KEY
from devices.registry.named_keys import NamedKeys
from server.net.addresses import address_of, host_name, is_loopback

SUBPROTOCOL_PREFIX = "openai-insecure-api-key."
"Prefix of the WebSocket subprotocol that carries a browser's key: a browser cannot set headers."

ANY_SITE = "*"
"Entry of the allowed origins that allows every site."


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """Properties of a request by which the gate decides."""

    host: str | None
    "The Host header. Browsers always send it."
    origin: str | None = None
    "The Origin header: site of the page that sends the request. Programs send none."
    scheme: str = "http"
    "URL scheme that the client used: `http` or `https`."
    token: str | None = field(default=None, repr=False)
    "Key or other token that the request carries."
    is_basic: bool = False
    """True: the key came as a password. Browsers remember a password and send it by themselves, so
    it says nothing about the site that makes the request."""
    is_forwarded: bool = False
    "True: a proxy sent the request. The proxy is on this machine, but its client may be elsewhere."
    peer: str | None = None
    "Address from which the connection came."
    is_cross_site: bool = False
    """True: a browser reports that a page of another site loads this as a link, an image or a
    sound. Such requests carry no Origin."""


@dataclass(frozen=True, slots=True)
class AccessGrant:
    """Result of a request that the gate let in."""

    is_trusted: bool
    "True: the request has the key or needs none."
    cors_origin: str | None = None
    "Foreign Origin that may read the answer; None if the request came from our own page."
    token: str | None = field(default=None, repr=False)
    "Token of the request, unless it is a key of the server."
    named_key: NamedKey | None = None
    "Named key of the request, or with which its token was made."
    missing_scope: KeyScope | None = None
    "Scope that the path needs and the named key does not have."

    def check_scope(self) -> None:
        """Raises Forbidden missing_scope if the named key does not open this path."""
        if self.missing_scope is not None and self.named_key is not None:
            raise Forbidden(
                f"the key {self.named_key.name!r} does not have the scope {self.missing_scope!r},"
                f" which this needs; it has: {', '.join(self.named_key.scopes) or 'none'}",
                code="missing_scope",
            )


@dataclass(frozen=True, slots=True)
class AccessGate:
    """Access rules of one listener."""

    is_local: bool
    "True: only programs and pages of this machine reach the listener; they need no key."
    key: str | None = field(repr=False)
    "Key of the server; None if it has none."
    hosts: frozenset[str] = frozenset()
    "Names of this server, besides localhost and IP addresses."
    origins: frozenset[str] = frozenset({ANY_SITE})
    "Foreign origins that may use the server with the key; `*` means all."
    keys: NamedKeys | None = field(default=None, repr=False)
    "Named keys. None: there are none."
    only_peer: str = ""
    """Address of the proxy that alone may connect, and that has checked who its user is, as Home
    Assistant's ingress has. Empty: anybody may connect."""

    def admit(
        self,
        caller: AccessRequest,
        *,
        is_public: bool,
        scope: KeyScope | None = None,
        admits: TokenCheck | None = None,
        is_trusted_address: bool = False,
    ) -> AccessGrant:
        """Decides on a request. `is_public`: the path needs no key. `scope`: what a named key needs
        there; None: nothing. `admits`: accepts tokens of this path that are not the key.
        `is_trusted_address`: the caller needs no key because of its address. Raises Forbidden
        (`forbidden_host`, `forbidden_origin`) or Unauthorized."""
        if self.only_peer:
            return self._admit_peer(caller)
        name = self._check_host(caller)
        is_foreign = caller.is_cross_site or not _is_same_origin(caller)
        is_remote = (
            not self.is_local or caller.is_forwarded or not (name is None or is_loopback(name))
        )
        needs_key = is_remote or is_foreign
        is_key = self._is_key(caller.token)
        named_key = None if is_key else self._named_key(caller.token)
        token = None if is_key or named_key else caller.token
        admitted = token is not None and admits is not None and admits(token)
        if isinstance(admitted, NamedKey):
            named_key = admitted
        is_accepted = is_key or named_key is not None or bool(admitted)
        # A browser sends a remembered password with requests of any page, so it does not count on a
        # foreign page.
        has_key = is_trusted_address or (is_accepted and not (is_foreign and caller.is_basic))
        lacks_scope = not (
            is_trusted_address or named_key is None or scope is None or scope in named_key.scopes
        )
        if is_public and (lacks_scope or not has_key):
            return AccessGrant(is_trusted=not needs_key, token=token)
        if is_foreign and caller.origin is not None and not self.allows_origin(caller.origin):
            raise Forbidden(
                f"this site ({caller.origin}) is not in server.allowed_origins",
                code="forbidden_origin",
            )
        # A revoked named key is refused on this machine, too. Without its key the request would
        # count as one of the owner.
        is_revoked = token is not None and token.startswith(NAMED_KEY)
        if (needs_key or is_revoked) and not has_key:
            if caller.is_cross_site and not is_remote:
                raise Forbidden(
                    "a page of another site cannot load this; only scripts that send the key can",
                    code="forbidden_origin",
                )
            raise Unauthorized(
                self._refusal_reason(caller, accepts_other_tokens=admits is not None)
            )
        return AccessGrant(
            is_trusted=True,
            cors_origin=caller.origin if is_foreign else None,
            token=token,
            named_key=named_key,
            missing_scope=scope if lacks_scope else None,
        )

    def _admit_peer(self, caller: AccessRequest) -> AccessGrant:
        """Lets in what the proxy sends. Its session has a cookie that a browser does not send with
        requests of other sites. Raises Forbidden forbidden_address."""
        if caller.peer != self.only_peer:
            raise Forbidden(
                f"only {self.only_peer} may connect to this port (home_assistant.ingress_proxy)",
                code="forbidden_address",
            )
        return AccessGrant(is_trusted=True)

    def allows_origin(self, origin: str) -> bool:
        """Returns True if a site may use the server with the key."""
        return ANY_SITE in self.origins or origin in self.origins

    def _check_host(self, caller: AccessRequest) -> str | None:
        """Returns the name in the Host header, or None without one. Raises Forbidden if it is not
        ours. A foreign page can point its own name at our address (DNS rebinding). It cannot do
        that with an IP address."""
        if caller.host is None:
            return None
        name = host_name(caller.host)
        if name is not None and (
            name in self.hosts or is_loopback(name) or address_of(name) is not None
        ):
            return name
        raise Forbidden(
            f"unknown Host {caller.host[:100]!r}; add it to server.allowed_hosts if it is a name"
            " of this server",
            code="forbidden_host",
        )

    def _is_key(self, token: str | None) -> bool:
        if not self.key or token is None:
            return False
        return compare_digest(token.encode("utf-8", "replace"), self.key.encode())

    def _named_key(self, token: str | None) -> NamedKey | None:
        return self.keys.find(token) if self.keys is not None and token is not None else None

    def _refusal_reason(self, caller: AccessRequest, *, accepts_other_tokens: bool) -> str:
        if caller.token is not None and caller.token.startswith(NAMED_KEY):
            return "this named key is unknown, or it was revoked; `earshot keys list` shows all"
        if caller.token is not None and accepts_other_tokens:
            return "the key is wrong, or a client secret that is unknown or has expired"
        if caller.token is not None and self.key:
            return "the key is wrong; the right one is in api-key in the server's state folder"
        if self.key:
            return "a key is needed: send the header 'Authorization: Bearer <key>'"
        return (
            "a key is needed from other machines, and the server has none: set"
            " EARSHOT_REQUIRE_KEY=true"
        )


def token_of(
    authorization: str | None, subprotocols: str | None, api_key_header: str | None = None
) -> str | None:
    """Returns the key of a request: from Authorization, X-API-Key (`api_key_header`) or WebSocket
    subprotocols."""
    scheme, _, token = (authorization or "").strip().partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    if api_key_header and api_key_header.strip():
        return api_key_header.strip()
    if password := password_of(authorization):
        return password
    for part in (subprotocols or "").split(","):
        if part.strip().startswith(SUBPROTOCOL_PREFIX):
            return part.strip().removeprefix(SUBPROTOCOL_PREFIX)
    return None


def password_of(authorization: str | None) -> str | None:
    """Returns the password of HTTP's Basic scheme, or None. `any:key@host` in a URL becomes such a
    header; Willow devices know no other way."""
    scheme, _, credentials = (authorization or "").strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = b64decode(credentials.strip(), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return None
    return text.partition(":")[2] or None


def _is_same_origin(caller: AccessRequest) -> bool:
    """Returns True if Origin and Host name the same scheme, host and port, or there is no
    Origin."""
    if caller.origin is None:
        return True
    try:
        origin = urlsplit(caller.origin)
        host = urlsplit(f"{caller.scheme}://{caller.host}")
        default_port = {"http": 80, "https": 443}.get(caller.scheme)
        return (origin.scheme, origin.hostname, origin.port or default_port) == (
            caller.scheme,
            host.hostname,
            host.port or default_port,
        )
    except ValueError:
        return False
