"""Declarations of a door's HTTP routes: enough to mount them and to write `/openapi.json` from
types.

Each door exports `routes(door) -> tuple[Route, ...]`; the server mounts `handler` as it is.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from core.access.named_key import KeyScope, NamedKey

HttpMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

JSON = "application/json"

FORWARDED = frozenset(
    (
        "cdn-loop",
        "client-ip",
        "forwarded",
        "forwarded-for",
        "front-end-https",
        "proxy-authorization",
        "proxy-client-ip",
        "proxy-connection",
        "true-client-ip",
        "via",
        "wl-proxy-client-ip",
        "x-amzn-trace-id",
        "x-client-ip",
        "x-cloud-trace-context",
        "x-cluster-client-ip",
        "x-original-uri",
        "x-originating-ip",
        "x-proxyuser-ip",
        "x-real-ip",
        "x-remote-addr",
        "x-remote-ip",
        "x-varnish",
        "x-vercel-id",
    )
)
"Headers, in lower case, that proxies add. A client that calls directly sends none of them."

FORWARDED_PREFIXES = (
    "cf-",  # Cloudflare: CF-Connecting-IP, CF-Ray, ...
    "cloudfront-",
    "fastly-",
    "fly-",
    "ngrok-",
    "remote-",  # Remote-User and the like: from proxies that ask for a password
    "tailscale-",
    "x-amz-cf-",
    "x-amzn-mtls-",
    "x-amzn-oidc-",
    "x-appengine-",
    "x-arr-",  # IIS
    "x-auth-request-",  # oauth2-proxy
    "x-authentik-",
    "x-azure-",
    "x-envoy-",
    "x-forwarded",
    "x-goog-authenticated-user-",
    "x-goog-iap-",
    "x-ms-client-principal",
    "x-ms-forwarded-",
    "x-nf-",  # Netlify
    "x-original-",
    "x-pomerium-",
    "x-vercel-forwarded-",
    "x-vercel-ip-",
)
"Prefixes of such headers."


def is_forwarded(headers: Iterable[str], version: tuple[int, int]) -> bool:
    """Returns whether a proxy forwarded a request, by its header names and HTTP version, so that
    the real client is another machine.

    nginx with its default configuration adds no header, but speaks HTTP/1.0 to the server behind
    it; clients speak 1.1. A forwarder of TCP bytes cannot be detected; `server.require_key` is for
    that.
    """
    names = [name.lower() for name in headers]
    return version < (1, 1) or any(
        name in FORWARDED or name.startswith(FORWARDED_PREFIXES) for name in names
    )


BROKEN_FORM = (ValueError, RuntimeError, AssertionError)
"""Exceptions that aiohttp's reader of multipart forms raises for a wrong form, besides its own
errors: bytes that are no text, an unknown encoding, a boundary that is longer than the piece it
reads."""

RouteHandler = Callable[[Any], Awaitable[Any]]
"Takes the web library's request and returns its response; core imports no web library."

TokenCheck = Callable[[str], NamedKey | bool]
"""Check of a token on a path that accepts other tokens than the server's keys. A named key: the
token was made with it, so it has that key's limits."""


@dataclass(frozen=True, slots=True)
class Route:
    """One HTTP operation of a door."""

    method: HttpMethod
    path: str
    "URL path, with `{name}` for path parameters, as OpenAPI writes them."
    handler: RouteHandler
    summary: str
    "One sentence for the API's page."
    tag: str
    "Heading under which the API's page lists it: the door's name."
    scope: KeyScope = field(kw_only=True)
    """Scope that a named key needs here. Without a default, so that no route gets one by accident.
    A public route answers a named key without this scope as it answers a request without a key."""
    request: type | None = None
    "Type of a JSON body, or of a multipart form's parts; None: no body, or not JSON."
    request_content_types: tuple[str, ...] = ()
    "Accepted content types; () with a `request` means JSON."
    responses: Mapping[int, type | None] = field(default_factory=lambda: {200: None})
    "Success status -> type of its JSON body; None: no body, or one of `response_content_type`."
    response_content_type: str = JSON
    response_headers: Mapping[str, str] = field(default_factory=dict)
    "Response header -> its meaning."
    query: Mapping[str, str] = field(default_factory=dict)
    "Query parameter -> what it does; all are optional."
    error_codes: tuple[str, ...] = ()
    "Stable error codes of this operation, besides those that every operation has."
    is_public: bool = False
    "True if it needs no key."
    admits: TokenCheck | None = None
    """Returns whether this bearer token is accepted besides the server's keys, or the named key
    with which the token was made; None: no other token is."""
    admits_peer: Callable[[str | None], bool] | None = None
    """Returns whether a program at this address needs no key, for devices that cannot hold one.
    Never applies to a page in a browser or to a request through a proxy. None: every address needs
    a key."""
    admits_page: Callable[[str, str | None], bool] | None = None
    """Returns whether pages of this origin, in a browser at this address, need no key. Never
    applies to a request through a proxy. None: every origin needs a key."""
    has_plain_errors: bool = False
    """True: errors are `{"error": "message"}`, as clients of Ollama read them, in place of OpenAI's
    object."""
    error_field: str = "error"
    "Name of the field with the message, if `has_plain_errors` is set."
    max_body_bytes: int | None = None
    """Largest body in bytes; None: the server's own limit. A handler with a larger one reads the
    body in pieces, and counts the bytes of those without a Content-Length."""
